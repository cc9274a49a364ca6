"""Make an instance real: a container with its disk, image and instance metadata."""
