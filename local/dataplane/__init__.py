"""Make nodes, networks and firewalls what EC2 says that they are."""
