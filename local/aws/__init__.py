"""Serve the control plane of the local AWS: moto, with the behaviour that it lacks filled in."""
