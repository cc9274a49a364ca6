"""Agree on who is in the cluster: records, membership, and the master that writes it."""
