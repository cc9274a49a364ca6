"""``dlcluster``: the daily verbs of a cluster's user. Keeps no local state."""
