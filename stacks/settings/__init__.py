"""Read, check and default the settings of a cluster. Imports no aws_cdk, so that dlcluster checks them without Node."""
