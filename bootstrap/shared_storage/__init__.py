"""Mount the file system that all nodes share, and keep it mounted, without delaying anything else."""
