"""Implement the PyTorch backend (step.py): device, data types, optimizer, copies to and from a GPU."""
