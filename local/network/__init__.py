"""Give nodes interfaces, addresses and routes in their VPCs."""
