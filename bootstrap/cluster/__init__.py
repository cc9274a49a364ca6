"""Maintain the membership: records, table, and the coordinator on the master that writes it."""
