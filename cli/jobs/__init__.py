"""Start, list, follow and stop jobs with the launcher on the master."""
