"""Define the resources in AWS, as CDK constructs.

Only ``settings``, ``interrupts`` and ``missing_package`` do not import aws_cdk.
"""
