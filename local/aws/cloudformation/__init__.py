"""Fill in what moto lacks of CloudFormation."""
