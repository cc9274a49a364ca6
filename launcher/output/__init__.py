"""Write the ranks' output to the launcher's own streams."""
