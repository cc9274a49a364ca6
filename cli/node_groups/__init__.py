"""Handle the node groups of a cluster: their sizes, the questions before nodes end or start, and the waits for both."""
