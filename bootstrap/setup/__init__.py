"""Run the user's setup on a node, once, before the node joins the cluster (settings setup and requirements)."""
