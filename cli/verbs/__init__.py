"""Define the verbs of ``dlcluster``, one module each, with a ``command`` that ``cli.verb_group`` loads."""
