"""Load image folders: DIRECTORY/train/CLASS/*.jpg and DIRECTORY/val/CLASS/*.jpg, the usual layout of ImageNet."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from trainer.data.dataset import Dataset
from trainer.data.images.decoding import EncodedSamples, import_pillow, make_dataset_of_images
from trainer.errors import TrainerError
from trainer.models import ImageShape

SUFFIXES: Final = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp"))
LAYOUT: Final = "image folders are DIRECTORY/train/CLASS/*.jpg and DIRECTORY/val/CLASS/*.jpg, say with --data-dir where"


def load_folder(directory: Path, image_shape: ImageShape) -> Dataset:
    """List the images of both parts; classes are the directories of train, by name.

    Raises TrainerError if a part is missing or unreadable, a class has no image, or this Python has no Pillow.
    """
    import_pillow("Image")
    names, validation = (list_classes(directory / part, hint=LAYOUT) for part in ("train", "val"))
    labels = {name: label for label, name in enumerate(names)}
    unknown = [name for name in validation if name not in labels]
    if unknown:
        raise TrainerError(f"{directory / 'val'} has the class {unknown[0]}, which {directory / 'train'} lacks")
    return make_dataset_of_images(
        _list(directory / "train", labels, image_shape),
        _list(directory / "val", {name: labels[name] for name in validation}, image_shape),
        num_classes=len(names),
        class_names=tuple(names),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Files(EncodedSamples):
    """Samples that are separate files."""

    paths: Sequence[Path] = field(repr=False)

    def open(self, sample: int) -> Path:
        """Return the path of a sample's image."""
        return self.paths[sample]

    def describe(self, sample: int) -> str:
        """Return the path of a sample's image as text."""
        return str(self.paths[sample])


def list_classes(directory: Path, *, hint: str) -> list[str]:
    """Return the names of the classes; the error of an unreadable directory ends with the hint."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError as error:
        raise TrainerError(f"cannot read {directory}: {error.strerror}; {hint}") from error
    if not names:
        raise TrainerError(f"{directory} has no directories, there must be one for each class")
    return names


def _list(directory: Path, classes: Mapping[str, int], image_shape: ImageShape) -> Files:
    """List the images of these classes; ``classes`` maps their names to labels."""
    paths, labels = [], []
    for name, label in classes.items():
        images = list_images(directory / name)
        paths += images
        labels += [label] * len(images)
    return Files(paths=paths, labels=np.array(labels, np.int64), image_shape=image_shape)


def list_images(directory: Path) -> list[Path]:
    """Return the images of one class. Do not use glob(), which treats an unreadable directory as empty."""
    try:
        with os.scandir(directory) as entries:
            paths = sorted(Path(entry.path) for entry in entries)
    except OSError as error:
        raise TrainerError(f"cannot read {directory}: {error.strerror}") from error
    images = [path for path in paths if path.suffix.lower() in SUFFIXES]
    if not images:
        raise TrainerError(f"{directory} has no images: no file name ends in one of {', '.join(sorted(SUFFIXES))}")
    return images
