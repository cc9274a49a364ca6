"""Extend the IAM service of moto: managed policies of templates, and the policy simulator."""
