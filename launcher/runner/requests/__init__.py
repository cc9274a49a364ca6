"""Carry out on a node what the launcher requests before the spec: syncs, frameworks, venv and secrets."""
