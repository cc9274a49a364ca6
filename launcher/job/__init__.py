"""Run a job: its nodes, its attempts, its restarts and its end."""
