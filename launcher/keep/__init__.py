"""Keeps the connections of a job that ended well open for the next launch; see docs/decisions/018."""
