"""Start one command on every node of the cluster and end it as one job."""
