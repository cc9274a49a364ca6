"""What the launcher starts on each node: it runs the node's ranks and ends them with the job."""
