"""Turn an EC2 instance into a node of the cluster, and maintain it as one."""
