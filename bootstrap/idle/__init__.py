"""Pause a cluster that nobody uses, announce every upcoming pause, and read what jobs leave in their directories."""
