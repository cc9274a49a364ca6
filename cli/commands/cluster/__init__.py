"""Define the commands that list, describe and change a cluster."""
