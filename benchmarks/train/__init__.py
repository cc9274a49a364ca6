"""Measure the trainer on two nodes, and its checkpoints."""
