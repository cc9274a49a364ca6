"""Add behavior of CloudFormation that moto lacks."""
