"""Check the account: credentials, permissions, roles, and whatever must exist before a deploy."""
