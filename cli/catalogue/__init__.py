"""Refresh the catalogue of instance types from EC2."""
