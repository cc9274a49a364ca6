"""Parse the command line; options have the names of MXNet's image classification example."""

import argparse
from collections.abc import Sequence
from typing import Final

from trainer.config.argument_parser import ArgumentParser
from trainer.config.choices import COMPRESSION_TYPES, DTYPES, FRAMEWORKS, KV_STORES_OF
from trainer.config.datasets import DATASETS
from trainer.config.option_types import number, parse_epochs, parse_gpus, parse_shape, parse_steps, parse_switch
from trainer.config.settings import TrainConfig
from trainer.errors import UsageError
from trainer.models import NETWORKS

COUNT: Final = "a whole number of at least 1"
NOT_NEGATIVE: Final = "a number of at least 0"
FRACTION: Final = "a number of at least 0 and below 1"


def parse(arguments: Sequence[str]) -> TrainConfig:
    """Return the settings on the command line; the others keep their defaults."""
    parser = _build_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UsageError(parser.describe_unknown(unknown[0]))
    values = vars(options)
    # MXNet's example spells it --network resnext --num-layers 110.
    if layers := values.pop("num_layers", None):
        values["network"] = f"{values.get('network', '')}{layers}"
    # Likewise for --benchmark 1.
    if values.pop("benchmark", False) and values.setdefault("dataset", "synthetic") != "synthetic":
        raise UsageError(
            f"--benchmark 1 trains on generated images and cannot be combined with --dataset {values['dataset']}"
        )
    # MXNet's example has no --dataset, because its files imply it.
    if "data_train" in values:
        values.setdefault("dataset", "recordio")
    return TrainConfig(**values)


def _build_parser() -> ArgumentParser:
    # TrainConfig has the defaults: omit options that are not on the command line.
    parser = ArgumentParser(
        prog="trainer",
        description="Train a network on this machine, or under `launch` on the whole cluster.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    _add_network_options(parser)
    _add_rate_options(parser)
    _add_training_options(parser)
    _add_speed_options(parser)
    _add_run_options(parser)
    _add_report_options(parser)
    _add_data_options(parser)
    return parser


def _add_network_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    default = TrainConfig()
    add("--network", help=f"one of {', '.join(NETWORKS)}; or your own, as module:function (default {default.network})")
    add(
        "--num-layers",
        type=number(int, COUNT),
        metavar="N",
        help="layers, appended to --network: resnet and 20 select resnet20",
    )
    add(
        "--gpus",
        nargs="?",
        const=(),
        type=parse_gpus,
        metavar="0,1,...",
        help="GPUs of each node; default: one GPU per process if the node has GPUs, else the CPU",
    )
    add(
        "--batch-size",
        dest="batch_size_per_node",
        type=number(int, COUNT),
        metavar="N",
        help=f"samples per step on each node (default {default.batch_size_per_node})",
    )
    add("--num-epochs", type=number(int, COUNT), metavar="N", help=f"number of epochs (default {default.num_epochs})")


def _add_training_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    default = TrainConfig()
    add(
        "--mom",
        dest="momentum",
        metavar="MOM",
        type=number(float, FRACTION),
        help=f"momentum (default {default.momentum})",
    )
    decay_help = f"weight decay (default {default.weight_decay})"
    add("--wd", dest="weight_decay", metavar="WD", type=number(float, NOT_NEGATIVE), help=decay_help)
    add("--wd-all", type=parse_switch, metavar="0|1", help="1: biases and BatchNorm's factors decay too (default 0)")
    add(
        "--last-batch",
        metavar="drop|keep",
        help=f"drop or keep an epoch's last batch if it is smaller than the others (default {default.last_batch})",
    )
    add(
        "--label-smoothing",
        type=number(float, FRACTION),
        metavar="E",
        help="label smoothing factor: probability spread evenly over all classes "
        f"(default {default.label_smoothing:g})",
    )
    add("--framework", help=f"one of {', '.join(FRAMEWORKS)} (default {default.framework})")
    add("--engine", dest="framework", help=argparse.SUPPRESS)  # the option's first name
    stores = "; ".join(f"{framework}: {', '.join(names)}" for framework, names in KV_STORES_OF.items())
    add(
        "--kv-store",
        help=f"one of {stores} (default dist_sync for several processes, device for one). device and local do not "
        "communicate: each process trains a network of its own. dist_async saves checkpoints only at the end of an "
        "epoch, and none at SIGTERM",
    )
    add(
        "--sync-bn",
        action="store_true",
        help="synchronize BatchNorm's statistics over all ranks (default: each rank normalizes by its own samples)",
    )


def _add_run_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    default = TrainConfig()
    add(
        "--seed",
        type=number(int, f"a whole number of at least 0 and below {2**32}"),
        help=f"random seed for weights and sample order (default {default.seed})",
    )
    add(
        "--model-prefix",
        metavar="PATH",
        help="beginning of the checkpoints' paths, s3://BUCKET/FOLDER/NAME for copies in S3 "
        f"(default {default.checkpoint_prefix})",
    )
    add(
        "--resume",
        metavar="auto|never",
        help=f"auto: continue where an interrupted run stopped; never: start over (default {default.resume})",
    )
    add(
        "--checkpoint-seconds",
        type=number(float, "a number above 0"),
        metavar="SECONDS",
        help="seconds between checkpoints; one is also saved at the end of each epoch "
        f"(default {default.checkpoint_seconds:g})",
    )


def _add_report_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    default = TrainConfig()
    add(
        "--disp-batches",
        type=number(int, COUNT),
        metavar="N",
        help=f"batches between two lines of progress (default {default.disp_batches})",
    )
    add("--metrics", metavar="FILE", help="write metrics as lines of JSON, on rank 0's machine")
    add("--tensorboard", metavar="DIR", help="write metrics for TensorBoard, on rank 0's machine")
    add(
        "--profile-steps",
        type=parse_steps,
        metavar="A-B",
        help="trace these steps of this run, counted from 1, on every rank (--framework torch)",
    )
    add("--profile-dir", metavar="DIR", help=f"directory for the traces (default {default.profile_dir})")


def _add_speed_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("speed (--framework torch)").add_argument
    default = TrainConfig()
    add("--dtype", help=f"compute data type, one of {', '.join(DTYPES)} (default float32, on GPUs with TF32)")
    add(
        "--gradient-accumulation",
        type=number(int, COUNT),
        metavar="N",
        help="micro-batches per optimizer step; the effective batch is N times as large "
        f"(default {default.gradient_accumulation})",
    )
    add(
        "--gc-type",
        dest="gradient_compression",
        metavar="GC_TYPE",
        help=f"precision of gradients sent between nodes, one of {', '.join(COMPRESSION_TYPES)} "
        f"(default {default.gradient_compression})",
    )
    add(
        "--compile",
        help="torch.compile: 0, 1 (default mode), graphs (reduce-overhead), or auto: the fastest (default 0)",
    )
    add("--fast", help=f"auto: measure a few steps and pick data type, layout and compile (default {default.fast})")
    add(
        "--reduction",
        help="how gradients are summed over the ranks: ddp (PyTorch's DistributedDataParallel), buckets (our own), "
        "ring (our own, for CPUs), or auto: ddp between GPUs, buckets with --deterministic or --gc-type, ring between "
        "CPUs (default auto)",
    )
    add(
        "--deterministic",
        action="store_true",
        help="make GPUs compute the same bits every time, also after a resume (default: the fastest algorithms)",
    )


def _add_rate_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("learning rate").add_argument
    default = TrainConfig()
    add(
        "--lr",
        type=number(float, "a number above 0"),
        help="learning rate (default: 0.05 at global batch 64, scaled linearly, capped at 0.1 without warm-up)",
    )
    add(
        "--lr-batch-size",
        type=number(int, COUNT),
        metavar="N",
        help="the global batch size that --lr is for; the rate scales with the actual one (default: no scaling)",
    )
    add(
        "--warmup-epochs",
        type=number(float, NOT_NEGATIVE),
        metavar="N",
        help=f"warm-up length in epochs (default {default.warmup_epochs:g})",
    )
    add(
        "--lr-step-epochs",
        type=parse_epochs,
        metavar="30,60",
        help="epochs at which the rate is multiplied by --lr-factor (default none)",
    )
    add("--lr-schedule", metavar="step|cosine", help=f"how the rate decays (default {default.lr_schedule})")
    add(
        "--lr-factor",
        type=number(float, "a number above 0 and at most 1"),
        help=f"decay factor (default {default.lr_factor})",
    )


def _add_data_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("data").add_argument
    default = TrainConfig()
    add("--dataset", help=f"one of {', '.join(DATASETS)} (default {default.dataset})")
    add("--data-dir", metavar="DIR", help=f"folder of its files, or s3://BUCKET/FOLDER (default {default.data_dir})")
    add(
        "--data-train",
        metavar="FILE.rec",
        help="RecordIO file for training, or s3://BUCKET/KEY; means --dataset recordio",
    )
    add("--data-val", metavar="FILE.rec", help="RecordIO file for validation, or s3://BUCKET/KEY")
    for part, option in (("training", "--data-train-idx"), ("validation", "--data-val-idx")):
        add(
            option,
            metavar="FILE.idx",
            help=f"index of the file for {part} (default: the name with .idx; without one, a pass over a local file)",
        )
    add("--benchmark", type=parse_switch, metavar="0|1", help="1: --dataset synthetic, generated images (default 0)")
    add(
        "--image-shape",
        type=parse_shape,
        metavar="C,H,W",
        help="image shape of digits, folder, recordio and synthetic (default: 1,28,28 for digits, otherwise the "
        "network's own)",
    )
    add("--num-classes", type=number(int, COUNT), metavar="N", help="number of classes (default: the dataset's)")
    add(
        "--num-examples",
        type=number(int, COUNT),
        metavar="N",
        help="generated images to train on (default 2000, or 128 MiB of them)",
    )
    add(
        "--augment",
        metavar="none|standard",
        help="training images: standard takes a random part of a folder's and of RecordIO's, in the network's size, "
        "and of other datasets a random crop, and mirrors each image with probability 1/2 (default standard for "
        "folder and recordio, none for others)",
    )
    add(
        "--random-crop",
        type=parse_switch,
        metavar="0|1",
        help="1: crop at random, after 4 pixels of padding where needed (default 0)",
    )
    add(
        "--random-mirror",
        type=parse_switch,
        metavar="0|1",
        help="1: mirror each image with probability 1/2 (default 0)",
    )
