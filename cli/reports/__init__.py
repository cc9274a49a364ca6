"""Format what ``dlcluster status`` and ``dlcluster why`` print."""
