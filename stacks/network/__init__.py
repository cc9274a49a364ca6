"""Build the network of a cluster: VPC and subnets, security groups, the address of the master."""
