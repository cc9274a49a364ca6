"""Add behaviour of Amazon EC2 that moto lacks."""
