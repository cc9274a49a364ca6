"""Ask AWS about clusters: stacks, nodes, scaling activities, logs."""
