"""What exists in AWS. Only the constructs import aws_cdk; props and instances do not."""
