"""Print the logs that a node keeps of a job; runs on that node."""
