"""The control plane of the local AWS: moto, with the behaviours that it lacks filled in."""
