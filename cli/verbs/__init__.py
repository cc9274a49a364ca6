"""Define the verbs of ``dlcluster``, one module a verb; each has a ``command``, which cli.verb_group finds."""
