"""Keep jobs in the cluster's bucket, so that they outlive all nodes, and take them up again: ``launch --durable``."""
