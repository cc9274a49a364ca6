"""Define the resources in AWS, as CDK constructs. Only ``stacks.settings`` and
``stacks.missing_package`` do not import aws_cdk.
"""
