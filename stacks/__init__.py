"""Define the resources in AWS, as CDK constructs. Only ``settings`` and ``interrupts`` do not import aws_cdk."""
