"""Evaluate IAM policies: of callers for the control plane, and of resources for it and the data plane."""
