"""MXNet, Horovod and Open MPI on the nodes: one Python environment, built by the master, fetched by the others.

Today's machine images have none of them. ``bootstrap engines`` is a service of its own beside the agent,
which goes on while it works and waits for its result before it calls the node ready.
"""
