"""File systems of the local AWS: serve each from a directory, at mount targets with an address and a name."""
