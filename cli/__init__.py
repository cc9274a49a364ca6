"""Run ``dlcluster``, which covers a user's daily work with a cluster and keeps no local state."""
