"""Run a local AWS: its sandbox, its session, and the shell that a person works in."""
