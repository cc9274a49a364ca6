"""Monitor a cluster: its nodes, what runs on them, and whether each answers."""
