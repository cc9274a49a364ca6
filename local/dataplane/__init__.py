"""Make nodes, networks and firewalls match what EC2 reports."""
