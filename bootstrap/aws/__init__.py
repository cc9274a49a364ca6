"""Talk to AWS: clients, instance metadata, signals, logs, the Elastic IP."""
