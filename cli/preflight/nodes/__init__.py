"""Check that EC2 offers the nodes: image, instance type and zone."""
