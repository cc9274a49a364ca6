"""Runs of the local AWS: start one in its sandbox, enter it, and end it."""
