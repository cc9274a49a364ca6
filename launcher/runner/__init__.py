"""Run a node's ranks for the launcher, and end them with the job."""
