"""Write the node's files: hosts, workers, variables, ssh."""
