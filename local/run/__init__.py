"""Run a local AWS: its sandbox, its session, and the shell in which a person works."""
