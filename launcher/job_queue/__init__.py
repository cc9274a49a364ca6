"""Have jobs wait for nodes that other jobs use: ``launch --wait``, and durable jobs."""
