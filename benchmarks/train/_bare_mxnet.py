"""Train several workers with MXNet's gluon.Trainer and dist_sync: ``python _bare_mxnet.py NETWORK``.

This follows MXNet's guide ("Distributed Training in MXNet") with hybridize(static_alloc=True), its fastest setting.
In the scheduler and the servers ``import mxnet`` serves until the job ends, and then exits the process.
"""

import sys
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from benchmarks.harness.work import WORK
from trainer.models import NETWORKS
from trainer.mxnet_backend.models import build


def main(network: str) -> None:
    """Train, and print the speed of each window."""
    work = WORK[network]
    mx.random.seed(0)
    store = mx.kv.create("dist_sync")
    shape = NETWORKS[network].image_shape
    samples = work.batch_size * work.steps
    generator = np.random.default_rng(0)
    images = generator.standard_normal((samples, *shape), np.float32)
    labels = generator.integers(10, size=samples)
    model = build(network, num_classes=10, image_shape=shape)
    model.hybridize(static_alloc=True)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    settings = {"learning_rate": 0.01, "momentum": 0.9, "wd": 0.0001}
    trainer = gluon.Trainer(model.collect_params(), "sgd", settings, kvstore=store)
    for _ in range(work.epochs):
        nd.waitall()
        start, order = time.perf_counter(), generator.permutation(samples)
        for step in range(work.steps):
            batch = order[step * work.batch_size : (step + 1) * work.batch_size]
            with autograd.record():
                loss = loss_of(model(nd.array(images[batch])), nd.array(labels[batch]))
            loss.backward()
            trainer.step(work.batch_size * store.num_workers)
            if (step + 1) % work.window == 0:
                nd.waitall()
                seconds, start = time.perf_counter() - start, time.perf_counter()
                print(f"Speed: {work.window * work.batch_size / seconds:.2f} samples/sec", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
