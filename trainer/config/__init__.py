"""Parse and check the command line, and define the settings of a run and its learning-rate schedule."""
