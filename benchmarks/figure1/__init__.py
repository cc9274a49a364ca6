"""Measure and draw the fifth article's Figure 1."""
