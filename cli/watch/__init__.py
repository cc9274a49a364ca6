"""Look at a cluster again and again: its nodes, what runs on them, and whether each answers."""
