"""Commands that make images of nodes."""
