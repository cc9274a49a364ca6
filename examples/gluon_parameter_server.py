"""Train with MXNet's Gluon and parameter servers, as written for MXNet's launch.py.

    launch -s 2 python gluon_parameter_server.py       two servers, a worker on every node

Each machine has one worker, which drives all of its GPUs; the servers keep the weights and add up the gradients.
"""

import argparse
import random

# A server or the scheduler runs inside this import, and never returns from it.
import mxnet as mx
from digits import load
from mxnet import autograd, gluon, nd


class SplitSampler(gluon.data.sampler.Sampler):
    """Shuffles this worker's part of the samples; all parts are equally long."""

    def __init__(self, length, num_parts=1, part_index=0):
        self._length = length // num_parts
        self._start = self._length * part_index

    def __iter__(self):
        order = list(range(self._start, self._start + self._length))
        random.shuffle(order)
        return iter(order)

    def __len__(self):
        return self._length


def network():
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(32, 3, padding=1, activation="relu"), gluon.nn.MaxPool2D(2),
        gluon.nn.Conv2D(64, 3, padding=1, activation="relu"), gluon.nn.MaxPool2D(2),
        gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10),
    )  # fmt: skip
    return net


def train_batch(batch, devices, net, trainer, *, global_batch_size):
    """Compute each device's share of this worker's batch; the servers add up the gradients of all workers."""
    inputs = gluon.utils.split_and_load(batch[0], devices, even_split=False)
    targets = gluon.utils.split_and_load(batch[1], devices, even_split=False)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        losses = [loss_of(net(x), y) for x, y in zip(inputs, targets, strict=True)]
    for loss in losses:
        loss.backward()
    trainer.step(global_batch_size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of each machine")
    options = parser.parse_args()

    mx.random.seed(0)
    random.seed(0)
    devices = [mx.gpu(index) for index in range(mx.context.num_gpus())] or [mx.cpu()]
    store = mx.kv.create("dist_sync")
    (images, labels), (val_images, val_labels) = load()
    part = SplitSampler(len(labels), store.num_workers, store.rank)
    samples = gluon.data.ArrayDataset(images, labels.astype("float32"))
    batches = gluon.data.DataLoader(samples, options.batch_size, sampler=part, last_batch="discard")

    net = network()
    net.initialize(mx.init.Xavier(), ctx=devices)
    settings = {"learning_rate": 0.05, "momentum": 0.9}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=store)
    for _ in range(options.epochs):
        for batch in batches:
            train_batch(batch, devices, net, trainer, global_batch_size=options.batch_size * store.num_workers)

    predicted = net(nd.array(val_images, ctx=devices[0])).argmax(axis=1).asnumpy()
    print(f"worker {store.rank}/{store.num_workers} accuracy={(predicted == val_labels).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
