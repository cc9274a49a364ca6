"""Serve the control plane of the local AWS: moto, extended by the behavior that it lacks."""
