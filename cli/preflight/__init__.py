"""What ``dlcluster preflight`` checks: one module a concern, each check a generator of findings."""
