"""Define the commands that run jobs, follow them, and copy their files."""
