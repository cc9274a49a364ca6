"""Train with the Module API like MXNet's examples: a local kvstore, nothing is closed, one worker exits first.

The computation is arranged so that its last gradients have not been sent when it exits.
"""

import os
import time

# Otherwise the loss, for which fit waits, would be read only after the complete backward pass.
os.environ["MXNET_CPU_WORKER_NTHREADS"] = "2"

import mxnet as mx

BATCH = 2048


def fit() -> None:
    """Train for two steps; rank 0 then takes its time, as if it saved a checkpoint."""
    kv = mx.kvstore.create("dist_sync")
    network = mx.sym.Variable("data")
    for _ in range(6):
        network = mx.sym.Activation(mx.sym.FullyConnected(network, num_hidden=800), act_type="relu")
    network = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(network, num_hidden=10), name="softmax")
    images, labels = mx.nd.random.uniform(shape=(2 * BATCH, 20)), mx.nd.zeros(2 * BATCH)
    model = mx.mod.Module(context=mx.cpu(), symbol=network)
    model.fit(
        mx.io.NDArrayIter(images, labels, batch_size=BATCH),
        num_epoch=1,
        kvstore=kv,
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
        initializer=mx.init.Xavier(),
        # With two of these, fit leaves a reference cycle that keeps the kvstore alive until the exit.
        batch_end_callback=mx.callback.Speedometer(BATCH, 1),
        epoch_end_callback=lambda *_: time.sleep(5 if kv.rank == 0 else 0),
    )
    print(f"rank {kv.rank} leaves", flush=True)


fit()
