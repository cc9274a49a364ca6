"""Train with PyTorch's DistributedDataParallel, as written for torchrun: it reads only the variables of torchrun.

torchrun --nproc-per-node 2 torchrun_ddp.py        one machine
launch --nproc-per-node 2 torchrun_ddp.py          every node of the cluster; by default one process per GPU
"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from digits import load, network
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    options = parser.parse_args()

    torch.manual_seed(0)
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    (images, labels), (val_images, val_labels) = load()
    samples = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    sampler = DistributedSampler(samples, drop_last=True)
    batches = DataLoader(samples, options.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * size, momentum=0.9)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device)).backward()
            optimizer.step()

    with torch.no_grad():
        predicted = model(torch.from_numpy(val_images).to(device)).argmax(1).cpu()
    correct = predicted == torch.from_numpy(val_labels)
    print(f"rank {rank}/{size} accuracy={correct.float().mean():.3f}", flush=True)
    # Free DistributedDataParallel before its group, whose last owner joins gloo's threads while it holds the GIL, which
    # may hang. The first one that a process makes is in a reference cycle, so only the collector frees it.
    del model
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
