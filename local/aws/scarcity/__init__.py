"""Make EC2 scarce: finite places in zones, and vCPU quotas."""
