"""Serve file systems to nodes: mount targets with an address and a name, and a directory behind each file system."""
