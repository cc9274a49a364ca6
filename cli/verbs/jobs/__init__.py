"""Define the verbs that run jobs, follow them, and copy their files."""
