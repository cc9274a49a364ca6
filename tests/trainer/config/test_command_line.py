"""Test the options: their defaults, their meaning, and the messages about wrong ones."""

from dataclasses import fields, replace

import pytest

from trainer.config.choices import option_name
from trainer.config.command_line import _build_parser, parse
from trainer.config.settings import FIXED_ON_RESUME, TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup, data_parallel_layout
from trainer.distributed.world import World
from trainer.errors import UsageError


def test_empty_command_line_gives_all_defaults() -> None:
    assert parse([]) == TrainConfig()


def test_options_are_named_as_in_mxnets_example() -> None:
    arguments = (
        "--network lenet --gpus 0,2 --batch-size 32 --num-epochs 3 --lr 0.2 --mom 0.5 --wd 0 "
        "--kv-store dist_device_sync --seed 4 --model-prefix out/net --disp-batches 5 --benchmark 1"
    )
    assert parse(arguments.split()) == TrainConfig(
        network="lenet",
        gpus=(0, 2),
        batch_size_per_node=32,
        num_epochs=3,
        lr=0.2,
        momentum=0.5,
        weight_decay=0,
        kv_store="dist_device_sync",
        seed=4,
        model_prefix="out/net",
        disp_batches=5,
        dataset="synthetic",
    )


def test_network_and_num_layers_select_resnext110() -> None:
    assert parse(["--network", "resnext", "--num-layers", "110"]).network == "resnext110"


@pytest.mark.parametrize(
    ("arguments", "shape", "num_classes"),
    [
        ([], (1, 28, 28), 10),
        (["--network", "resnet20"], (1, 28, 28), 10),
        (["--network", "resnet20", "--dataset", "cifar10"], (3, 32, 32), 10),
        (["--network", "resnet50", "--benchmark", "1"], (3, 224, 224), 1000),
        (
            ["--network", "resnet50", "--benchmark", "1", "--image-shape", "3,96,96", "--num-classes", "7"],
            (3, 96, 96),
            7,
        ),
        (["--network", "own:net", "--benchmark", "1", "--image-shape", "3,8,8"], (3, 8, 8), 10),
        (["--network", "own:net"], (1, 28, 28), 10),
    ],
)
def test_input_shape_and_classes_follow_the_dataset(
    arguments: list[str], shape: tuple[int, int, int], num_classes: int
) -> None:
    config = parse(arguments)
    assert (config.input_shape, config.resolved_num_classes) == (shape, num_classes)


@pytest.mark.parametrize("arguments", [["--gpus", "--network", "lenet"], ["--gpus", ""], ["--gpus="], []])
def test_empty_gpus_option_selects_no_gpus(arguments: list[str]) -> None:
    assert parse(arguments).gpus == ()


@pytest.mark.parametrize(
    ("framework", "kv_store", "distributed"),
    [("torch", "device", False), ("mxnet", "device", False), ("horovod", "horovod", True)],
)
def test_each_framework_has_a_default_kv_store(framework: str, kv_store: str, distributed: bool) -> None:
    config = TrainConfig(framework=framework)
    assert (config.effective_kv_store, config.distributed) == (kv_store, distributed)


def test_accumulated_batches_count_as_one_global_batch() -> None:
    config = parse(["--batch-size", "32", "--gradient-accumulation", "4", "--kv-store", "dist_sync"])
    ranks = World(rank=1, world_size=4, local_rank=1, local_world_size=2)
    assert data_parallel_layout(config, ranks) == (DataParallelGroup(rank=1, world_size=4), 2 * 4 * 32)
    assert data_parallel_layout(parse(["--gradient-accumulation", "3"]), World()) == (
        DataParallelGroup(),
        3 * 64,
    )


def test_resolved_dtype_is_the_one_that_is_measured_or_given() -> None:
    assert [TrainConfig(dtype=dtype).resolved_dtype for dtype in (None, "float32", "float16")] == [
        "float32",
        "float32",
        "float16",
    ]
    assert TrainConfig(fast="auto").resolved_dtype == "auto"
    assert TrainConfig(fast="auto", dtype="bfloat16").resolved_dtype == "bfloat16"


def test_folders_are_augmented_by_default() -> None:
    folder = TrainConfig(dataset="folder", image_shape=(3, 32, 32))
    assert folder.augmentations == ("resized-crop", "mirror")
    assert replace(folder, augment="none").augmentations == ()
    assert replace(folder, random_crop=True).augmentations == ("crop",)
    assert TrainConfig().augmentations == ()
    assert TrainConfig(augment="standard").augmentations == ("crop", "mirror")


def test_every_setting_has_an_option() -> None:
    known = set(_build_parser().known_options())
    assert {option_name(name) for name in (*FIXED_ON_RESUME, *(field.name for field in fields(TrainConfig)))} <= known


def test_settings_are_checked_without_a_command_line() -> None:
    with pytest.raises(UsageError, match="unknown --kv-store"):
        TrainConfig(kv_store="dist_sink")
