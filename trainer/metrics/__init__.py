"""Measure and report a training: results, progress bar, metrics files, step times, profiles, FLOPs."""
