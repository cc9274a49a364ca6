"""Run ``dlcluster``, a user's daily work with a cluster; it keeps no local state."""
