"""Let jobs wait in line for nodes that other jobs have: ``launch --wait``, and durable jobs."""
