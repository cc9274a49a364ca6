"""Start, stop and connect nodes until containers, networks and firewalls match what the control plane reports."""
