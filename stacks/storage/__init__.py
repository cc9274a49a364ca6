"""Build what stores data of a cluster: the table, the bucket and the log group."""
