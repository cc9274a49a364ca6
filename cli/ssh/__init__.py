"""Reach a node over SSH: OpenSSH's configuration, and one command through paramiko."""
