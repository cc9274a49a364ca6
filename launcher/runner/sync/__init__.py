"""Receive the files of a job on a node, and pass them on to the next."""
