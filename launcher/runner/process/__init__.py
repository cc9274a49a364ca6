"""Start rank processes, supervise them, and leave none behind."""
