"""Reach a node: ssh, the runner behind it, and the protocol that both speak."""
