"""Implement the PyTorch backend (trainer.step): device, data types, optimizer, copies to and from a GPU."""
