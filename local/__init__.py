"""Emulate AWS on this machine: a control plane (moto) and a container per instance.

The product does not import this package.
"""
