"""Check that the quotas of the account leave room for the cluster."""
