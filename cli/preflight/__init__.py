"""Check before a deploy what it needs: one module a concern, each check a generator of findings."""
