"""IAM policies of the local AWS: evaluate them without moto, for its control plane and its data plane."""
