"""Start the complete fleet in the first candidate zone with capacity for it, or start nothing."""
