"""Measure the trainer on a machine with a GPU."""
