"""Evaluate IAM policies for the control plane (local.aws.authorization) and the data plane, without moto."""
