"""Nodes of the local AWS: make an instance real as a container with its disk, image and instance metadata."""
