"""Connect the ranks of a training run, and let them agree."""
