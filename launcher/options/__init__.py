"""Parse the command line of ``launch`` into one JobSpec."""
