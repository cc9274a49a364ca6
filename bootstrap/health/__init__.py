"""Check whether this node is fit to train."""
