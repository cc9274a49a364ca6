"""Maintain the membership: records, table, and the master's coordinator, which writes it."""
