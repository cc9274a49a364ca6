"""Pause a cluster that nobody uses, and announce every upcoming pause."""
