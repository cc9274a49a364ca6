"""Keep a record of every job, and answer ``launch list``, ``status``, ``logs`` and ``stop``."""
