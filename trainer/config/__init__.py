"""Read and check the command line: options (parser), one run's settings (settings), learning rate (schedule)."""
