"""Report what a cluster costs and has cost, and refresh the prices."""
