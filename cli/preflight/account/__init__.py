"""Check the account: credentials, permissions, roles, and what must exist in it before a deploy."""
