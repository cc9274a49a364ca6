"""Connect the ranks of a training, and let them agree."""
