"""Control plane of the local AWS: answer AWS's API with moto and what moto lacks. Nothing here starts a node."""
