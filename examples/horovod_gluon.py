"""MXNet's Gluon with Horovod, as written for horovodrun and mpirun.

    launch --engine horovod python horovod_gluon.py    every node, over Gloo
    launch --launcher mpi python horovod_gluon.py      the same over Open MPI

One process a GPU. Marked are the lines that make a script for one GPU one for all of them. The learning rate grows
with their number, from that of one GPU on, over the first epochs.
"""

import argparse

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from digits import load
from mxnet import autograd, gluon, nd


def network():
    """With all sizes given, the weights are there before the first batch, to be broadcast."""
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(32, 3, padding=1, activation="relu", in_channels=1), gluon.nn.MaxPool2D(2),
        gluon.nn.Conv2D(64, 3, padding=1, activation="relu", in_channels=32), gluon.nn.MaxPool2D(2),
        gluon.nn.Dense(64, activation="relu", in_units=256), gluon.nn.Dense(10, in_units=64),
    )  # fmt: skip
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--lr", type=float, default=0.02, help="of one process")
    parser.add_argument("--warmup-epochs", type=int, default=2)
    parser.add_argument("--distributed-optimizer", action="store_true", help="as Horovod's first releases had it")
    options = parser.parse_args()

    hvd.init()  # Horovod
    mx.random.seed(0)
    np.random.seed(0)
    device = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu()  # Horovod: a GPU of one's own
    (images, labels), (held_out, answers) = load()
    length = len(labels) // hvd.size()  # Horovod: a part of one's own, and all of the same length
    own = slice(length * hvd.rank(), length * (hvd.rank() + 1))
    samples = gluon.data.ArrayDataset(images[own], labels[own].astype("float32"))
    batches = gluon.data.DataLoader(samples, options.batch_size, shuffle=True, last_batch="discard")

    net = network()
    net.initialize(mx.init.Xavier(), ctx=device)
    parameters = net.collect_params()
    hvd.broadcast_parameters(parameters, root_rank=0)  # Horovod: all begin with the same weights
    steps = len(batches)
    rate = mx.lr_scheduler.MultiFactorScheduler(
        step=[options.epochs * steps * 3 // 4], factor=0.1,
        base_lr=options.lr * hvd.size(),  # Horovod: the batch of all processes is so many times larger
        warmup_begin_lr=options.lr, warmup_steps=options.warmup_epochs * steps,
    )  # fmt: skip
    optimizer = mx.optimizer.create("sgd", lr_scheduler=rate, momentum=0.9, wd=0.0001)
    if options.distributed_optimizer:
        optimizer.rescale_grad = 1 / options.batch_size  # Horovod: what step() says does not reach it
        trainer = gluon.Trainer(parameters, hvd.DistributedOptimizer(optimizer), kvstore=None)  # Horovod: averages
    else:
        trainer = hvd.DistributedTrainer(parameters, optimizer)  # Horovod: averages the gradients
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(options.epochs):
        for inputs, targets in batches:
            with autograd.record():
                loss = loss_of(net(inputs.as_in_context(device)), targets.as_in_context(device))
            loss.backward()
            trainer.step(options.batch_size)

    found = net(nd.array(held_out, ctx=device)).argmax(axis=1).asnumpy()
    print(f"worker {hvd.rank()}/{hvd.size()} accuracy={(found == answers).mean():.3f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
