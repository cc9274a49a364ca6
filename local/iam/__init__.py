"""Evaluate IAM policies for the control plane (local.aws.permissions) and the data plane, without moto."""
