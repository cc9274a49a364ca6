"""Define and check the settings of one run."""

import math
from dataclasses import dataclass, fields
from typing import Final

from trainer.config.choices import (
    AUGMENTATIONS,
    FRAMEWORKS,
    KV_STORES_OF,
    LAST_BATCHES,
    RESUME,
    TORCH_ONLY_SETTINGS,
    check_choice,
    check_kv_store,
    format_value,
    option_name,
)
from trainer.config.datasets import DATASETS, check_channels, check_record_files
from trainer.config.lr_settings import LRSettings
from trainer.config.paths import check_data_dir, check_local, check_prefix, folder_in_s3
from trainer.config.schedule import LRSchedule, warmup_lrs
from trainer.config.torch_settings import TorchSettings
from trainer.errors import UsageError
from trainer.models import NETWORKS, ImageShape, check_network

DEFAULT_NUM_CLASSES: Final = 10
"""Number of classes of a user's own network, unless --num-classes or the dataset sets it."""
NOT_DISTRIBUTED: Final = ("local", "device")
FIXED_ON_RESUME: Final = (
    *("network", "framework", "batch_size_per_node", "lr", "momentum", "weight_decay", "wd_all", "seed", "sync_bn"),
    *("dataset", "input_shape", "num_classes", "num_examples", "random_crop", "random_mirror"),
    *("resolved_dtype", "gradient_accumulation", "gradient_compression"),
    *("lr_batch_size", "warmup_epochs", "lr_factor", "lr_schedule", "lr_step_epochs", "last_batch"),
    *("augmentations", "label_smoothing"),
)
"""Settings and properties that must not change when a run resumes, because they change its result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(LRSettings, TorchSettings):
    """Settings of one run, named as in MXNet's image classification example."""

    network: str = "lenet"
    """One of NETWORKS, or module:function."""
    framework: str = "torch"
    """Framework that computes and communicates, one of FRAMEWORKS."""
    gpus: tuple[int, ...] = ()
    """GPUs of each node, one process per GPU. Default: one GPU per process if the node has GPUs, else the CPU."""
    batch_size_per_node: int = 64
    """Batch size per node, split over its processes."""
    num_epochs: int = 12
    """Number of epochs; enough for the digits with up to 8 nodes."""
    momentum: float = 0.9
    """Momentum of the optimizer."""
    weight_decay: float = 0.0001
    """Weight decay of the optimizer."""
    wd_all: bool = False
    """Apply weight decay to biases and BatchNorm's factors too. Default: False (Goyal et al. 2017, section 5.1)."""
    last_batch: str = "drop"
    """Treatment of an epoch's smaller last batch, one of LAST_BATCHES; every epoch reshuffles the samples."""
    kv_store: str | None = None
    """Communication between ranks. Default: dist_sync if the launcher started several processes, device for one."""
    sync_bn: bool = False
    """Synchronize BatchNorm's statistics over all ranks (SyncBatchNorm)."""
    seed: int = 0
    """Seed of the initial weights and of the sample order."""
    model_prefix: str | None = None
    """Prefix of the checkpoints' paths; s3://BUCKET/FOLDER/NAME to copy checkpoints/NAME to S3.
    Default: checkpoints/NETWORK in the working directory."""
    disp_batches: int = 20
    """Batches between two progress lines; MXNet's option name, kept for its scripts."""
    dataset: str = "digits"
    """One of DATASETS. Default: the digits, which come with the trainer."""
    data_dir: str = "data"
    """Directory of the dataset's files, local or s3://BUCKET/FOLDER; digits and synthetic need none."""
    data_train: str | None = None
    """RecordIO file for training, local or s3://BUCKET/KEY."""
    data_train_idx: str | None = None
    """Index of data_train. Default: its name with .idx; without such a file, a pass over a local file's records."""
    data_val: str | None = None
    """RecordIO file for validation, local or s3://BUCKET/KEY."""
    data_val_idx: str | None = None
    """Index of data_val. Default: its name with .idx; without such a file, a pass over a local file's records."""
    image_shape: ImageShape | None = None
    """Channels, height and width. Default: the dataset's, or the network's; see input_shape."""
    num_classes: int | None = None
    """Number of classes. Default: the dataset's, or the network's; see resolved_num_classes."""
    num_examples: int | None = None
    """Number of synthetic images. Default: 2,000, or as many as fit into 128 MiB."""
    augment: str = "auto"
    """Augmentation of training images, one of AUGMENTATIONS. Default: standard for encoded images, none for others."""
    label_smoothing: float = 0.0
    """Label smoothing factor: probability spread evenly over all classes (Szegedy et al. 2016, section 7)."""
    random_crop: bool = False
    """Crop training images at random positions. Default: in the middle."""
    random_mirror: bool = False
    """Mirror training images with probability 1/2."""
    resume: str = "auto"
    """Resume policy for an interrupted run. Default: resume if there is one."""
    metrics: str | None = None
    """File for metrics as JSON lines, written by rank 0."""
    tensorboard: str | None = None
    """Directory for TensorBoard's event files, written by rank 0."""
    profile_steps: tuple[int, int] | None = None
    """First and last step of this run to trace, from 1."""
    profile_dir: str = "profile"
    """Directory for the traces of all ranks. Default: profile in the working directory."""
    checkpoint_seconds: float = 600.0
    """Seconds between two checkpoints within an epoch; every epoch also ends with a checkpoint."""

    def __post_init__(self) -> None:
        check_network(self.network)
        check_choice("dataset", self.dataset, tuple(DATASETS))
        self._check_images()
        check_choice("framework", self.framework, FRAMEWORKS)
        check_kv_store(self.effective_kv_store, framework=self.framework)
        self._refuse_torch_only_settings()
        self.check_torch_settings(sync_bn=self.sync_bn)
        self._check_augmentation()
        check_choice("last_batch", self.last_batch, LAST_BATCHES)
        check_choice("resume", self.resume, RESUME)
        self._check_profile()
        for name in ("batch_size_per_node", "num_epochs", "disp_batches", "gradient_accumulation"):
            if getattr(self, name) < 1:
                raise UsageError(f"{option_name(name)} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"--seed must be at least 0 and below {2**32}, got {self.seed}")
        self.check_lr()
        if not (math.isfinite(self.checkpoint_seconds) and self.checkpoint_seconds > 0):
            raise UsageError(f"--checkpoint-seconds must be a number above 0, got {self.checkpoint_seconds}")
        check_prefix(self.model_prefix)
        check_data_dir(self.data_dir)
        files = ("data_train", "data_val", "data_train_idx", "data_val_idx")
        check_record_files(self.dataset, {name: getattr(self, name) for name in files})
        for name in ("metrics", "tensorboard"):
            check_local(name, getattr(self, name))
        if not 0 <= self.momentum < 1:
            raise UsageError(f"--mom must be at least 0 and below 1, got {self.momentum}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise UsageError(f"--wd must be a number of at least 0, got {self.weight_decay}")
        if self.gpus and self.framework != "torch":
            names = format_value(self.gpus)
            raise UsageError(
                f"--gpus requires --framework torch, as {self.framework} is MXNet's build for CPUs, got {names}"
            )
        if len(set(self.gpus)) < len(self.gpus):
            raise UsageError(f"--gpus must not repeat a number, got {format_value(self.gpus)}")

    @property
    def effective_kv_store(self) -> str:
        """Return the value of --kv-store, or the framework's default; it determines how ranks exchange gradients."""
        return self.kv_store or KV_STORES_OF[self.framework][0]

    @property
    def distributed(self) -> bool:
        """Return True if all processes train one model together."""
        return self.effective_kv_store not in NOT_DISTRIBUTED

    @property
    def samples_per_node_per_step(self) -> int:
        """Return the samples of one step on each node, over all its micro-batches."""
        return self.batch_size_per_node * self.gradient_accumulation

    @property
    def settings_fixed_on_resume(self) -> dict[str, object]:
        """Return the settings that must not change when the run resumes."""
        values = {name: getattr(self, name) for name in FIXED_ON_RESUME}
        # In the form that JSON returns: lists instead of tuples.
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def input_shape(self) -> ImageShape:
        """Return channels, height and width of the network's input."""
        if self.image_shape is not None:
            return self.image_shape
        return DATASETS[self.dataset].image_shape or NETWORKS[self.network].image_shape

    @property
    def resolved_num_classes(self) -> int:
        """Return the number of classes of the run; for encoded images, num_classes must be set first."""
        network = NETWORKS.get(self.network)
        default = DEFAULT_NUM_CLASSES if network is None else network.num_classes
        return self.num_classes or DATASETS[self.dataset].num_classes or default

    @property
    def checkpoint_prefix(self) -> str:
        """Return the prefix of the local paths: --model-prefix, or in checkpoints/ by default and with S3."""
        prefix = self.model_prefix or self.network.replace(":", ".")
        return prefix if self.model_prefix and self.s3_folder is None else f"checkpoints/{prefix.rpartition('/')[2]}"

    @property
    def s3_folder(self) -> str | None:
        """Return the S3 folder of the checkpoints' copies, if any."""
        return folder_in_s3(self.model_prefix)

    def _check_images(self) -> None:
        """Raise UsageError unless dataset and network fit."""
        data = DATASETS[self.dataset]
        if self.image_shape is not None and not data.resizable and self.image_shape != data.image_shape:
            raise UsageError(
                f"--image-shape of {self.dataset} must be {format_value(data.image_shape)}, "
                f"got {format_value(self.image_shape)}"
            )
        if self.image_shape is None and data.image_shape is None and self.network not in NETWORKS:
            raise UsageError(f"--image-shape must be given for {self.network} with {self.dataset}, such as 3,32,32")
        channels, height, width = self.input_shape
        if min(channels, height, width) < 1:
            raise UsageError(f"--image-shape must be three numbers of at least 1, got {format_value(self.input_shape)}")
        check_channels(self.dataset, self.input_shape)
        if self.network in NETWORKS and min(height, width) < (smallest := NETWORKS[self.network].min_image_size):
            raise UsageError(
                f"{self.network} takes images of at least {smallest}x{smallest}, {self.dataset} has {height}x{width}"
            )
        if self.num_classes is not None and self.num_classes < max(1, data.num_classes or 1):
            raise UsageError(
                f"--num-classes must be at least {data.num_classes or 1} with {self.dataset}, got {self.num_classes}"
            )
        if self.num_examples is not None and (self.dataset != "synthetic" or self.num_examples < 1):
            raise UsageError(
                "--num-examples must be at least 1 and is only for --dataset synthetic, "
                f"got {self.num_examples} with {self.dataset}"
            )

    @property
    def augmentations(self) -> tuple[str, ...]:
        """Return the augmentation of training images: resized-crop, crop, mirror."""
        chosen = (*("crop",) * self.random_crop, *("mirror",) * self.random_mirror)
        encoded = DATASETS[self.dataset].encoded
        if self.augment == "standard" or (self.augment == "auto" and encoded and not chosen):
            return ("resized-crop" if encoded else "crop", "mirror")
        return chosen

    def _check_augmentation(self) -> None:
        """Raise UsageError unless augmentation and label smoothing are valid."""
        check_choice("augment", self.augment, AUGMENTATIONS)
        if self.augment != "auto" and (self.random_crop or self.random_mirror):
            raise UsageError(
                f"--augment {self.augment} stands for --random-crop and --random-mirror too, give only one"
            )
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"--label-smoothing must be at least 0 and below 1, got {self.label_smoothing}")

    def _check_profile(self) -> None:
        """Raise UsageError unless these steps can be traced."""
        if self.profile_steps is None:
            return
        first, last = self.profile_steps
        if not 1 <= first <= last:
            raise UsageError(f"--profile-steps must be the first and the last step, from 1, got {first}-{last}")

    def _refuse_torch_only_settings(self) -> None:
        """Raise UsageError if a setting that only torch supports is changed for another framework."""
        if self.framework == "torch":
            return
        torch_only = (field for field in fields(self) if field.name in TORCH_ONLY_SETTINGS)
        changed = [field.name for field in torch_only if getattr(self, field.name) != field.default]
        if changed:
            raise UsageError(f"{option_name(changed[0])} requires --framework torch, got --framework {self.framework}")

    def schedule(self, *, global_batch_size: int) -> LRSchedule:
        """Return the learning rate schedule of the run."""
        start, peak = warmup_lrs(
            self.lr,
            self.lr_batch_size,
            global_batch_size=global_batch_size,
            # dist_async applies each update as many updates late as there are machines; the global batch size over a
            # machine's batch size is that number.
            async_batch_size=self.batch_size_per_node if self.effective_kv_store == "dist_async" else None,
            warms_up=self.warmup_epochs > 0,
        )
        return LRSchedule(
            start=start,
            peak=peak,
            warmup_epochs=self.warmup_epochs,
            factor=self.lr_factor,
            step_epochs=self.lr_step_epochs,
            cosine_epochs=self.num_epochs if self.lr_schedule == "cosine" else None,
        )
