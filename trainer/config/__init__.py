"""Parse and check the command line: options (parser), settings of a run (settings), learning rate (schedule)."""
