"""Define the verbs of ``dlcluster``, one module each; cli.verb_group finds the ``command`` in it."""
