"""Read, check and default the settings of a cluster.

Imports no aws_cdk, so that dlcluster can check them without Node.
"""
