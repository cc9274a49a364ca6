"""Provide MXNet, Horovod and Open MPI in one Python environment, which the master builds and the workers fetch.

Users name it with the setting ``engines``; the code calls it the engines environment, or here the environment.

Current machine images have none of them. ``bootstrap engines`` is a separate service: the agent runs beside it, and
waits for the environment before it signals that the node is ready.
"""
