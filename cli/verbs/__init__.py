"""One module a verb of ``dlcluster``, each with a ``main`` that takes the options."""
