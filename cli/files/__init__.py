"""Copy files between the user's machine and the cluster, over the connection to the master."""
