"""Fill in what moto lacks of Amazon EC2 Auto Scaling."""
