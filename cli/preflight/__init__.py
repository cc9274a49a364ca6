"""Check before a deploy that its requirements are met: one module per concern, each check a generator of findings."""
