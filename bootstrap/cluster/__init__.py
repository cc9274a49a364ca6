"""Agree on who is in the cluster: records, membership, and the coordinator on the master that writes it."""
