"""Train a small network on one machine or on all nodes of a cluster.

    launch python /opt/deeplearning/trainer --network lenet   # on the cluster
    python -m trainer --network lenet                         # on one machine

Start with train.py: it contains the program from the arguments to the final checkpoint, with the training step. The
trainer depends on the cluster only through its command line and the launcher's variables; only s3.py and
data/images/s3_object.py use AWS.
"""
