"""Implement the subcommands of ``launch``, such as ``list`` and ``stop``."""
