"""Open the dataset of the settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from trainer.config.choices import format_value
from trainer.config.settings import TrainConfig
from trainer.data.cifar import load_cifar10
from trainer.data.dataset import Dataset
from trainer.data.digits import load_digits
from trainer.data.images.folder import load_folder
from trainer.data.images.recordio_dataset import RecordPaths, load_recordio
from trainer.data.mnist import load_mnist
from trainer.data.s3_download import local_directory
from trainer.data.synthetic import make_synthetic
from trainer.errors import TrainerError, UsageError

OPENERS: Final[Mapping[str, Callable[[TrainConfig, Path], Dataset]]] = {
    "digits": lambda config, _: load_digits(config.input_shape),
    "mnist": lambda _, directory: load_mnist(directory, name="mnist"),
    "fashion-mnist": lambda _, directory: load_mnist(directory, name="fashion-mnist"),
    "cifar10": lambda _, directory: load_cifar10(directory),
    "folder": lambda config, directory: load_folder(directory, config.input_shape),
    "recordio": lambda config, _: _open_recordio(config),
    "synthetic": lambda config, _: make_synthetic(
        config.input_shape, num_classes=config.resolved_num_classes, samples=config.num_examples
    ),
}


def open_data(config: TrainConfig) -> Dataset:
    """Open the dataset; download it first if --data-dir is in S3.

    Raises UsageError if --num-classes is less than the dataset has, TrainerError if it cannot be read or does not fit
    into memory.
    """
    try:
        data = OPENERS[config.dataset](config, local_directory(config.data_dir))
    except MemoryError as error:
        # numpy's message contains the size of the allocation.
        reason = f", {error}" if str(error) else ""
        raise TrainerError(
            f"{config.dataset} with images of {format_value(config.input_shape)} does not fit into memory{reason}"
        ) from error
    if config.num_classes is not None and config.num_classes < data.num_classes:
        raise UsageError(
            f"--num-classes must be at least the {data.num_classes} of {config.dataset}, got {config.num_classes}"
        )
    return data


def _open_recordio(config: TrainConfig) -> Dataset:
    return load_recordio(
        RecordPaths(config.data_train or "", config.data_train_idx),
        RecordPaths(config.data_val or "", config.data_val_idx),
        config.input_shape,
        num_classes=config.num_classes,
    )
