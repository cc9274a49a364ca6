"""Write the ranks' output to the launcher's own streams, and read it back from logs."""
