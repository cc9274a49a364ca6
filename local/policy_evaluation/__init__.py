"""Evaluate IAM policies for the control plane (local.control_plane.authorization) and the data plane, without moto."""
