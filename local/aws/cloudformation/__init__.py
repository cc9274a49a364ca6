"""Add behaviour of CloudFormation that moto lacks."""
