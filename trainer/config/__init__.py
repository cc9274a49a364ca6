"""Read and check the command line: options (parser), one training's settings (settings), learning rate (schedule)."""
