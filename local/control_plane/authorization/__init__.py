"""Authorize every call by the caller's IAM policies, as AWS does and moto does not (see authorizer.py)."""
