"""Serve the control plane of the local AWS: moto, extended by the behaviour that it lacks."""
