"""Define the schedules that start and end a cluster, and what its nodes must know about them."""
