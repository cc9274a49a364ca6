"""Turn an EC2 instance into a node of the cluster, and keep it one."""
