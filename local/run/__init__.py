"""Run a local AWS: its sandbox, what starts inside, and the shell in which a person works."""
