"""Train two workers with DistributedDataParallel and little else: ``python _bare_ddp.py NETWORK BUCKET_MB``.

It prints only its speed, without checks and checkpoints. Its samples are in memory, normalized, before it starts; each
step uses a random batch of them.
"""

import gc
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness.work import WORK
from trainer.models import NETWORKS, build


def main(network: str, bucket_mb: float) -> None:
    """Train, and print the speed of each window."""
    work = WORK[network]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    shape = NETWORKS[network].image_shape
    samples = work.batch_size * work.steps
    # The same layout as the bundled trainer's, so that everything else is compared.
    images = torch.randn(samples, *shape).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (samples,))
    network_ = build(network, num_classes=10, image_shape=shape)
    network_.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's types lack this call
    # As PyTorch's "Performance Tuning Guide" and DistributedDataParallel's documentation advise for such a network:
    # no copy of the gradients beside the buckets, no broadcast of buffers, a graph that does not change, and buckets of
    # a size that was tried.
    model: nn.Module = DistributedDataParallel(
        network_, gradient_as_bucket_view=True, broadcast_buffers=False, static_graph=True, bucket_cap_mb=bucket_mb
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0001, fused=True)
    for _ in range(work.epochs):
        start, order = time.perf_counter(), torch.randperm(samples)
        for step in range(work.steps):
            batch = order[step * work.batch_size : (step + 1) * work.batch_size]
            optimizer.zero_grad()
            loss = cross_entropy(model(images[batch]), labels[batch])
            torch.autograd.backward(loss)
            optimizer.step()
            if (step + 1) % work.window == 0:
                seconds, start = time.perf_counter() - start, time.perf_counter()
                print(f"Speed: {work.window * work.batch_size / seconds:.2f} samples/sec", flush=True)
    # Free DistributedDataParallel before its group, as examples/torchrun_ddp.py explains.
    del model
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
