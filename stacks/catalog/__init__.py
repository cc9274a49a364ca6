"""Describe EC2 instance types and the Deep Learning AMIs that support them; imports no aws_cdk."""
