"""Provide MXNet, Horovod and Open MPI in one Python environment, which the master builds and the workers fetch.

The setting ``engines`` names it; here it is called the environment. Current machine images have no such engines.
``bootstrap engines`` is a separate service; the agent waits for the environment before it signals that the node is
ready.
"""
