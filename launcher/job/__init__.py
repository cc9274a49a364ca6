"""Run a job: its nodes, its runs, its restarts and its end."""
