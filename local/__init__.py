"""Rehearse AWS on this machine with a control plane and real nodes. The product does not import this package."""
