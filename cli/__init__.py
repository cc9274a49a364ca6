"""Run the daily work of a cluster's user as ``dlcluster``; keep no local state."""
