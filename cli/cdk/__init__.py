"""Read and change the settings in cdk.json, and deploy with them."""
