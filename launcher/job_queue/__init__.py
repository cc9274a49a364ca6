"""Queue jobs for nodes that other jobs use: ``launch --wait``, and durable jobs."""
