"""Query AWS about a cluster: stacks, nodes, scaling activities, logs."""
