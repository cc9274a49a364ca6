"""Extend moto's IAM: managed policies of templates, and the policy simulator."""
