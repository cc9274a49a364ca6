"""Helpers that the end-to-end tests of several folders share."""
