"""Check that the account's quotas leave room for the cluster."""
