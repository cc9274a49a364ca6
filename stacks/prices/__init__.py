"""Hold AWS prices, and estimate what a cluster costs an hour."""
