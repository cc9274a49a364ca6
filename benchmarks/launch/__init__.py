"""Measure the launcher: fan-out, start of a job, sync of files."""
