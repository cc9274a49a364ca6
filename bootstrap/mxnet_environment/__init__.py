"""Provide MXNet, Horovod and Open MPI in one Python environment, built by the master and downloaded by the workers.

The setting ``frameworks`` selects the environment, because current machine images lack these frameworks. ``bootstrap
mxnet-environment`` runs as its own service; the agent waits for the environment before it signals that the node is
ready.
"""
