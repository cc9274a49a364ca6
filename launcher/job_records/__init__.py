"""Record every job; implement ``launch list``, ``status``, ``logs`` and ``stop``."""
