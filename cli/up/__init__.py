"""Start the whole fleet in the first candidate zone that has room for it, or nothing."""
