"""Store jobs in the cluster's bucket so that they outlive all nodes, and restart them: ``launch --durable``."""
