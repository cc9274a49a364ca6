"""Check before a deploy what it needs: one module per concern, each check a generator of findings."""
