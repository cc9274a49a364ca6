"""Add behavior of Amazon EC2 that moto lacks."""
