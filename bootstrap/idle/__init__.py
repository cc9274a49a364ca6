"""Pause a cluster that nobody uses, and announce every pause to come."""
