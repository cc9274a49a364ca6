"""Load the digits that come with the trainer, for the examples in this folder."""

import gzip
import os
from pathlib import Path

import numpy as np

DIRECTORY = Path(os.environ.get("DIGITS", "/opt/deeplearning/trainer/data/bundled"))
"""Directory of the two files; on a machine without the trainer, the variable DIGITS names another one."""
FOR_TRAINING = 1437
"""Training samples of the 1,797; the others are held out."""


def load():
    """Return images of shape (samples, 1, 8, 8) and labels: first for training, then the held-out ones."""
    image_bytes = gzip.decompress((DIRECTORY / "digits-images-idx3-ubyte.gz").read_bytes())
    label_bytes = gzip.decompress((DIRECTORY / "digits-labels-idx1-ubyte.gz").read_bytes())
    # Headers of idx files: 4 bytes, and 4 for each dimension.
    images = np.frombuffer(image_bytes, np.uint8, offset=16).reshape(-1, 1, 8, 8).astype(np.float32) / 255
    labels = np.frombuffer(label_bytes, np.uint8, offset=8).astype(np.int64)
    train, held_out = slice(FOR_TRAINING), slice(FOR_TRAINING, None)
    return (images[train], labels[train]), (images[held_out], labels[held_out])


def batches():
    """Return torch's DataLoader of the training digits, 32 in a batch, for the examples with a few lines."""
    from torch.utils.data import DataLoader

    (images, labels), _ = load()
    return DataLoader([*zip(images.copy(), labels.tolist(), strict=True)], batch_size=32, shuffle=True, drop_last=True)


def network():
    """Return a small convolutional network of torch."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def accuracy(model, device):
    """Return a torch network's accuracy on the held-out digits."""
    import torch

    _, (images, labels) = load()
    with torch.no_grad():
        predicted = model.to(device)(torch.from_numpy(images).to(device)).argmax(1).cpu()
    return (predicted == torch.from_numpy(labels)).float().mean().item()
