"""Refresh the catalog of instance types from EC2."""
