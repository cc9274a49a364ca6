"""Define the resources in AWS, as CDK constructs. Only ``stacks.settings`` does not import aws_cdk."""
