"""Add behavior of Amazon EC2 Auto Scaling that moto lacks."""
