"""Judges calls by IAM policies, as AWS does and moto does not (see judge.py)."""
