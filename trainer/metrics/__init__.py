"""Measure and report a run: results, progress bar, metrics files, step times, profiles, FLOPs."""
