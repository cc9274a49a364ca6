"""Parse the command line of ``launch`` into one Job."""
