"""Puts the same files on every node before a job: what both ends agree on, and the launcher's end."""
