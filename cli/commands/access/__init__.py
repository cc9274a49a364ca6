"""Define the commands that connect to nodes, and those that print what access requires."""
