"""Make EC2 scarce: limited capacity in zones, and vCPU quotas."""
