"""Start nodes, clusters and pairs of workers for benchmarks."""
