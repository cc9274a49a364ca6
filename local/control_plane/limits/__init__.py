"""Limit EC2: the capacity of zones, and the quotas of the account."""
