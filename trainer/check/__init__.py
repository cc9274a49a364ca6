"""Check the nodes of a cluster: their GPUs, their Elastic Fabric Adapters and the network between them.

    launch python /opt/deeplearning/trainer/check      # on the master; dlcluster check does it from a laptop

Start with program.py. The nodes should be idle: a job would share the network with the measurement.
"""
