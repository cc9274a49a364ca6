"""Define the verbs that list, describe and change a cluster."""
