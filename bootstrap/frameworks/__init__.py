"""Provide MXNet, Horovod and Open MPI in one Python environment, which the master builds and the workers fetch.

Current machine images have none of them. ``bootstrap engines`` is a separate service: the agent runs beside it, and
waits for the environment before it signals that the node is ready.
"""
