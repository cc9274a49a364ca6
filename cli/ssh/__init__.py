"""Reach a node over SSH: OpenSSH's configuration, and commands through paramiko."""
