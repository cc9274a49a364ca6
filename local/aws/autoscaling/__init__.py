"""Add behaviour of Amazon EC2 Auto Scaling that moto lacks."""
