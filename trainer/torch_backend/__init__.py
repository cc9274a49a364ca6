"""Implement the PyTorch backend (backend.py): device, data types, optimizer, copies to and from a GPU."""
