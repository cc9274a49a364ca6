"""Read PyTorch's libraries once after a boot, before the first job has to wait for them."""
