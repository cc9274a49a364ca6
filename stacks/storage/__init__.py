"""Build a cluster's data stores: the table, the bucket and the log group."""
