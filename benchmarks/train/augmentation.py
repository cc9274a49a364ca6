"""Measure the gain of a folder's default augmentation: random parts and mirrored images, compared with none.

The images are synthetic: a triangle, a disc, a square or a cross on a noisy background. The 40 training images of each
class show it large and in the middle, as photographs often do; the validation images show it anywhere, smaller, and in
other proportions. LeNet learns them through the trainer's own folder reader, with two seeds.

``augmentation_accuracy`` is the mean validation accuracy with ``--augment standard`` divided by that with ``none``.

Run by ``make bench B=augmentation`` or ``python -m benchmarks.train.augmentation``; it takes a minute of one core.
"""

import logging
import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from PIL import Image, ImageDraw

from trainer.checkpoint.manager import CheckpointManager
from trainer.config.settings import TrainConfig
from trainer.data.open_dataset import open_data
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.torch_backend.create_backend import create_backend
from trainer.train import Trainer

SIZE = 64
SHAPES = ("cross", "disc", "square", "triangle")
TRAIN, VALIDATION = 40, 50
SEEDS = (0, 1)
CONFIG = TrainConfig(
    network="lenet",
    dataset="folder",
    image_shape=(3, 32, 32),
    batch_size_per_node=16,
    num_epochs=40,
    lr=0.02,
    lr_schedule="cosine",
    num_classes=len(SHAPES),
)

Pair = tuple[float, float]


def draw(shape: str, *, center: Pair, radii: Pair, noise: np.random.Generator) -> Image.Image:
    """Return an image of this shape; center and radii are shares of its size."""
    image = Image.fromarray(noise.integers(60, 120, (SIZE, SIZE, 3), np.uint8))
    pen = ImageDraw.Draw(image)
    (x, y), (across, down) = ((SIZE * first, SIZE * second) for first, second in (center, radii))
    color = tuple(noise.integers(150, 255, 3).tolist())
    box = (x - across, y - down, x + across, y + down)
    if shape == "disc":
        pen.ellipse(box, fill=color)
    elif shape == "square":
        pen.rectangle(box, fill=color)
    elif shape == "triangle":
        pen.polygon([(x, y - down), (x - across, y + down), (x + across, y + down)], fill=color)
    else:
        pen.rectangle((x - across, y - down / 3, x + across, y + down / 3), fill=color)
        pen.rectangle((x - across / 3, y - down, x + across / 3, y + down), fill=color)
    return image


def make_folder(directory: Path) -> None:
    """Write the images, as JPEG."""
    noise = np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("val", VALIDATION)):
        for shape in SHAPES:
            (directory / part / shape).mkdir(parents=True)
            for number in range(count):
                center, radii = (0.5, 0.5), (0.38, 0.38)
                if part == "val":
                    size, ratio = noise.uniform(0.2, 0.4), math.sqrt(noise.uniform(0.7, 1.4))
                    across, down = size * ratio, size / ratio
                    center, radii = (noise.uniform(across, 1 - across), noise.uniform(down, 1 - down)), (across, down)
                path = directory / part / shape / f"{number}.jpg"
                draw(shape, center=center, radii=radii, noise=noise).save(path, quality=90)


def learn(config: TrainConfig) -> float:
    """Return the validation accuracy after the last epoch."""
    [*_, last] = Trainer(
        backend=create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.02),
        data=open_data(config),
        config=config,
        dp=DataParallelGroup(),
        global_batch_size=config.batch_size_per_node,
        checkpoints=CheckpointManager(config, dp=DataParallelGroup(), store=None),
    ).train()
    return last.validation_accuracy


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    # The trainer gives PyTorch all cores unless this is set.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        make_folder(Path(directory))
        config = replace(CONFIG, data_dir=directory)
        accuracies_by_augment = {
            augment: [learn(replace(config, augment=augment, seed=seed)) for seed in SEEDS]
            for augment in ("none", "standard")
        }
    for augment, accuracies in accuracies_by_augment.items():
        print(f"{augment}: accuracy {', '.join(f'{accuracy:.3f}' for accuracy in accuracies)}", flush=True)
    plain, augmented = (fmean(accuracies_by_augment[augment]) for augment in ("none", "standard"))
    print(f"augmentation_accuracy {augmented / plain:.2f} ratio")


if __name__ == "__main__":
    main()
