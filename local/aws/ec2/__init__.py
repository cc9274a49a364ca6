"""Fill in what moto lacks of Amazon EC2."""
