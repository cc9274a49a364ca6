"""Measure and report a training run: results, progress bar, metrics files, step times, profiles, FLOPs."""
