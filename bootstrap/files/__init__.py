"""Write the node's files: hosts, workers, environment, ssh."""
