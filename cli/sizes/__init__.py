"""Change the sizes of a cluster's groups: pause, resume, resize."""
