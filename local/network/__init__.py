"""Give instances a network: VPCs, firewall, addresses, and the data plane that keeps nodes running."""
