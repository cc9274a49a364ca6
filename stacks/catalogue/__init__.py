"""Hold the facts about EC2's GPU instance types."""
