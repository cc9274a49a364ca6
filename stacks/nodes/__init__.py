"""Build the nodes of a cluster: groups, roles, machine image, user data and the bundle of code they run."""
