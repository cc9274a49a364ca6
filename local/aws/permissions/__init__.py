"""Authorize calls by IAM policies, as AWS does and moto does not (see authorizer.py)."""
