"""Start the complete fleet in the first candidate zone that has room for it, or start nothing."""
