"""Connect the ranks of a run, and collect values over them."""
