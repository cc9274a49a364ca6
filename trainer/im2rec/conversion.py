"""Convert a folder of class folders to PREFIX.rec, PREFIX.idx and PREFIX.lst.

Labels, order and names match MXNet's ``im2rec.py --list --recursive`` and ``im2rec.py --pass-through``: classes by
name, images shuffled with the same seed, each stored unchanged.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from trainer.atomic_file import atomic_write, temporary_path
from trainer.data.images.folder import list_classes, list_images
from trainer.data.images.recordio_format import pack_image, write_record
from trainer.errors import TrainerError

SHUFFLE_SEED: Final = 100
"""Seed of im2rec.py's order."""


class ListEntry(NamedTuple):
    """An image of a folder, as a line of PREFIX.lst."""

    key: int
    label: int
    path: Path


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(prog="im2rec", description="Write a folder of class folders as RecordIO files.")
    parser.add_argument("prefix", type=Path, help="path of the files without .rec, .idx and .lst")
    parser.add_argument("folder", type=Path, help="folder with one folder for each class")
    parser.add_argument("--no-shuffle", action="store_true", help="keep the images in the order of their names")
    options = parser.parse_args(arguments)
    try:
        count, classes = convert(options.prefix, options.folder, shuffle=not options.no_shuffle)
    except TrainerError as error:
        print(f"im2rec: {error}", file=sys.stderr)
        return 1
    print(f"{options.prefix}.rec: {count} images of {classes} classes")
    return 0


def convert(prefix: Path, folder: Path, *, shuffle: bool = True) -> tuple[int, int]:
    """Write the three files; return the numbers of images and classes."""
    names = list_classes(folder, hint="it must have a folder for each class")
    paths = [(label, path) for label, name in enumerate(names) for path in list_images(folder / name)]
    images = [ListEntry(key, label, path) for key, (label, path) in enumerate(paths)]
    if shuffle:
        random.Random(SHUFFLE_SEED).shuffle(images)  # noqa: S311  # an order, no secret
    index, listing = [], []
    records = _with_suffix(prefix, ".rec")
    try:
        with atomic_write(records, what="records") as file:
            for key, label, path in images:
                index.append(f"{key}\t{file.tell()}\n")
                listing.append(f"{key}\t{label:f}\t{path.relative_to(folder)}\n")
                write_record(file, pack_image(key=key, label=label, image=_read(path)))
    finally:
        # An unreadable image, or Ctrl-C, leaves the unfinished file.
        temporary_path(records).unlink(missing_ok=True)
    for suffix, lines in ((".idx", index), (".lst", listing)):
        with atomic_write(_with_suffix(prefix, suffix), what="the list of records") as file:
            file.write("".join(lines).encode())
    return len(images), len(names)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TrainerError(f"cannot read {path}: {error.strerror}") from error


def _with_suffix(prefix: Path, suffix: str) -> Path:
    # Do not use Path.with_suffix(), which replaces what follows a dot in the name.
    return prefix.with_name(prefix.name + suffix)
