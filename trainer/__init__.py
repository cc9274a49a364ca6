"""The bundled trainer: trains a small network on one machine or on all of them.

    launch python /opt/deeplearning/trainer --network lenet --kv-store dist_sync   # on the cluster
    python -m trainer --network lenet                                              # on one machine

It knows no AWS: command line and the launcher's environment variables are its whole interface.
The way through it: options -> config, ranks -> engine, data -> loop -> checkpoint.
"""
