"""Network of the local AWS: give nodes interfaces, addresses and routes in their VPCs."""
