"""Sum gradients over all ranks of the PyTorch backend."""
