"""What runs on an instance to make it a node of the cluster."""
