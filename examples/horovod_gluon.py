"""Train with MXNet's Gluon and Horovod, as written for horovodrun and mpirun.

    launch --framework horovod python horovod_gluon.py    every node, over Gloo
    launch --launcher mpi python horovod_gluon.py      the same over Open MPI

There is one process per GPU. Comments mark the lines that Horovod adds to a script for one GPU. During the first epochs
the learning rate grows from that of one GPU by the number of GPUs.
"""

import argparse

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from digits import load
from mxnet import autograd, gluon, nd


def network():
    """Build the network. All sizes are given, so that the weights exist before the first batch, for the broadcast."""
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
    device = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu()  # Horovod: one GPU per process
    (images, labels), (val_images, val_labels) = load()
    length = len(labels) // hvd.size()  # Horovod: one part per process, all equally long
    own = slice(length * hvd.rank(), length * (hvd.rank() + 1))
    samples = gluon.data.ArrayDataset(images[own], labels[own].astype("float32"))
    batches = gluon.data.DataLoader(samples, options.batch_size, shuffle=True, last_batch="discard")

    net = network()
    net.initialize(mx.init.Xavier(), ctx=device)
    parameters = net.collect_params()
    hvd.broadcast_parameters(parameters, root_rank=0)  # Horovod: start all processes with the same weights
    steps = len(batches)
    rate = mx.lr_scheduler.MultiFactorScheduler(
        step=[options.epochs * steps * 3 // 4], factor=0.1,
        base_lr=options.lr * hvd.size(),  # Horovod: the global batch is larger by the number of processes
        warmup_begin_lr=options.lr, warmup_steps=options.warmup_epochs * steps,
    )  # fmt: skip
    optimizer = mx.optimizer.create("sgd", lr_scheduler=rate, momentum=0.9, wd=0.0001)
    if options.distributed_optimizer:
        optimizer.rescale_grad = 1 / options.batch_size  # Horovod: it does not see the batch size of step()
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

    predicted = net(nd.array(val_images, ctx=device)).argmax(axis=1).asnumpy()
    print(f"worker {hvd.rank()}/{hvd.size()} accuracy={(predicted == val_labels).mean():.3f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
