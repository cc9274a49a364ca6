"""Collect and format the reports of ``dlcluster status`` and ``dlcluster why``."""
