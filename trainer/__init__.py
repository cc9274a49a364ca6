"""Train a small network on one machine or on all nodes of a cluster.

    launch python /opt/deeplearning/trainer --network lenet   # on the cluster
    python -m trainer --network lenet                         # on one machine

Start with train.py: it is the whole program from arguments to the final checkpoint, and holds the training step.
The command line and the launcher's environment variables are the trainer's whole interface; only s3.py uses AWS.
"""
