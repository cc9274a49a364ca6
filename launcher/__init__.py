"""Starts one command on every node of the cluster and ends it as one job."""
