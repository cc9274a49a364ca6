"""Read what jobs leave on a node for the agent: their locks, grace periods and records."""
