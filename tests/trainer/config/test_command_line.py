"""Test the options: their defaults, their meaning, and the messages about wrong ones."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from trainer.config.choices import option_name
from trainer.config.command_line import _build_parser, parse
from trainer.config.settings import FIXED_ON_RESUME, TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup, data_parallel_layout
from trainer.distributed.world import World
from trainer.errors import UsageError
from trainer.train import main


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
    ("arguments", "shape", "classes"),
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
    arguments: list[str], shape: tuple[int, int, int], classes: int
) -> None:
    config = parse(arguments)
    assert (config.input_shape, config.classes) == (shape, classes)


@pytest.mark.parametrize("arguments", [["--gpus", "--network", "lenet"], ["--gpus", ""], ["--gpus="], []])
def test_empty_gpus_option_selects_no_gpus(arguments: list[str]) -> None:
    assert parse(arguments).gpus == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--bach-size 3", "unknown argument '--bach-size', did you mean --batch-size"),
        ("--batch 3", "unknown argument '--batch'"),
        ("lenet", "unknown argument 'lenet'"),
        (
            "--network inception",
            "unknown --network 'inception', must be one of: lenet, resnet20, resnet110, resnext110, resnet50, alexnet",
        ),
        ("--work_load_list=3,1", "--work_load_list=3,1 is not supported: every process takes an equal share of the b"),
        ("--data-train a.rec --data-val b.rec --dataset cifar10", "--data-train requires --dataset recordio, got "),
        ("--data-train a.rec --network resnet20", "--data-val must be given with --dataset recordio, such as FILE.rec"),
        (
            "--data-train s3://b --data-val b.rec --network resnet20",
            "--data-train must be a file or s3://BUCKET/KEY, got s3://b",
        ),
        ("--network resnet --num-layers 34", "unknown --network 'resnet34', must be one of: lenet, resnet20"),
        ("--network my-net:build", "unknown --network 'my-net:build', must be one of: lenet"),
        ("--network :build", "unknown --network ':build', must be one of: lenet"),
        ("--kv-store dist", "unknown --kv-store 'dist', must be one of: local, device, dist_sync, dist_device_sync"),
        (
            "--kv-store dist_async",
            "--kv-store dist_async is not supported by --engine torch, "
            "which supports device, local, dist_sync, dist_device_sync; "
            "use it with --engine mxnet\n",
        ),
        ("--kv-store horovod", "--kv-store horovod is not supported by --engine torch"),
        (
            "--engine horovod --kv-store dist_sync",
            "--kv-store dist_sync is not supported by --engine horovod, "
            "which supports horovod; use it with --engine torch or",
        ),
        ("--engine mxnet --kv-store nccl", "unknown --kv-store 'nccl', must be one of: local, device, dist_sync"),
        ("--engine tensorflow", "unknown --engine 'tensorflow', must be one of: torch, mxnet, horovod\n"),
        ("--engine mxnet --gpus 0,1", "--gpus requires --engine torch, as mxnet is MXNet's build for CPUs, got 0,1\n"),
        ("--gpus 0,x", "--gpus must be numbers such as 0,1, got '0,x'"),
        ("--gpus 1,1", "--gpus must not repeat a number, got 1,1"),
        ("--benchmark yes", "--benchmark must be 0 or 1, got 'yes'"),
        (
            "--benchmark 1 --dataset mnist",
            "--benchmark 1 trains on generated images and cannot be combined with --dataset mnist",
        ),
        (
            "--dataset cifar",
            "unknown --dataset 'cifar', must be one of: digits, mnist, fashion-mnist, cifar10, fol",
        ),
        ("--dataset cifar10 --image-shape 3,28,28", "--image-shape of cifar10 must be 3,32,32, got 3,28,28"),
        ("--dataset cifar10 --network resnet50", "resnet50 takes images of at least 64x64, cifar10 has 32x32"),
        ("--dataset folder --network a:b", "--image-shape must be given for a:b with folder, such as 3,32,32"),
        (
            "--image-shape 32,32",
            "--image-shape must be channels, height and width such as 3,32,32, got '",
        ),
        ("--image-shape 0,32,32", "--image-shape must be three numbers of at least 1, got 0,32,32"),
        (
            "--dataset folder --image-shape 4,32,32",
            "--image-shape of folder must have 1 or 3 channels, got 4,32,32\n",
        ),
        ("--dataset mnist --num-classes 9", "--num-classes must be at least 10 with mnist, got 9"),
        (
            "--num-examples 9",
            "--num-examples must be at least 1 and is only for --dataset synthetic, got 9 with",
        ),
        ("--random-crop 2", "--random-crop must be 0 or 1, got '2'"),
        ("--augment all", "unknown --augment 'all', must be one of: auto, none, standard\n"),
        ("--augment none --random-crop 1", "--augment none stands for --random-crop and --random-mirror too, give"),
        ("--label-smoothing 1", "--label-smoothing must be at least 0 and below 1, got 1.0\n"),
        ("--lr-schedule linear", "unknown --lr-schedule 'linear', must be one of: step, cosine\n"),
        (
            "--lr-schedule cosine --lr-step-epochs 3",
            "--lr-step-epochs requires --lr-schedule step, got 3 with cosine\n",
        ),
        ("--reduction all", "unknown --reduction 'all', must be one of: auto, ddp, buckets, ring\n"),
        (
            "--reduction ddp --deterministic",
            "--reduction ddp cannot be combined with --deterministic, because DDP rebuilds its buckets",
        ),
        ("--batch-size 0", "--batch-size must be at least 1, got 0"),
        ("--batch-size many", "--batch-size must be a whole number of at least 1, got 'many'\n"),
        ("--batch-size", "--batch-size expected one argument"),
        ("--seed 1.5", "--seed must be a whole number of at least 0 and below 4294967296, got '1.5'\n"),
        ("--lr abc", "--lr must be a number above 0, got 'abc'\n"),
        ("--mom x", "--mom must be a number of at least 0 and below 1, got 'x'\n"),
        ("--model-prefix s3://bucket", "--model-prefix must be a path or s3://BUCKET/FOLDER/NAME, got s3://bucket\n"),
        ("--model-prefix runs/", "--model-prefix must end with a name, not with /, got runs/\n"),
        ("--metrics s3://a/b", "--metrics must be a path on rank 0's machine, got s3://a/b\n"),
        ("--tensorboard s3://a/b", "--tensorboard must be a path on rank 0's machine, got s3://a/b\n"),
        ("--num-epochs 0", "--num-epochs must be at least 1, got 0"),
        ("--disp-batches 0", "--disp-batches must be at least 1, got 0"),
        ("--seed -1", "--seed must be at least 0 and below 4294967296, got -1"),
        ("--profile-steps 3", "--profile-steps must be the first and the last step such as 10-12, got '3'"),
        ("--profile-steps 5-3", "--profile-steps must be the first and the last step, from 1, got 5-3"),
        ("--profile-steps 1-2 --engine mxnet", "--profile-steps requires --engine torch, got --engine mxnet"),
        ("--dtype half", "unknown --dtype 'half', must be one of: float32, bfloat16, float16"),
        ("--gc-type 2bit", "unknown --gc-type '2bit', must be one of: none, fp16, bf16"),
        ("--compile yes", "unknown --compile 'yes', must be one of: 0, 1, graphs, auto"),
        ("--fast on", "unknown --fast 'on', must be one of: off, auto"),
        ("--gradient-accumulation 0", "--gradient-accumulation must be at least 1, got 0"),
        ("--compile 1 --sync-bn", "--compile must be 0 with --sync-bn, whose sums torch.compile cannot see, got 1"),
        (
            "--compile graphs --deterministic",
            "--compile must be 0 with --deterministic, because compilation may choose other kernels, got gr",
        ),
        ("--deterministic --engine horovod", "--deterministic requires --engine torch, got --engine horovod"),
        ("--dtype bfloat16 --engine mxnet", "--dtype requires --engine torch, got --engine mxnet"),
        ("--gc-type fp16 --engine horovod", "--gc-type requires --engine torch, got --engine horovod"),
        ("--fast auto --engine mxnet", "--fast requires --engine torch, got --engine mxnet"),
        ("--lr 0", "--lr must be a number above 0, got 0.0"),
        ("--lr nan", "--lr must be a number above 0, got nan"),
        ("--lr-batch-size 256", "--lr-batch-size must be at least 1 and requires --lr, got 256 and none"),
        ("--warmup-epochs -1", "--warmup-epochs must be a number of at least 0, got -1.0"),
        ("--lr-factor 1.5", "--lr-factor must be above 0 and at most 1, got 1.5"),
        ("--lr-step-epochs 60,30", "--lr-step-epochs must be increasing and at least 1, got 60,30"),
        ("--lr-step-epochs 30;60", "--lr-step-epochs must be numbers such as 30,60, got '30;60'"),
        ("--mom 1", "--mom must be at least 0 and below 1, got 1.0"),
        ("--wd -1", "--wd must be a number of at least 0, got -1.0"),
    ],
)
def test_wrong_option_is_reported(capsys: pytest.CaptureFixture[str], arguments: str, message: str) -> None:
    assert main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"trainer: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(("global_batch_size", "rate"), [(32, 0.025), (64, 0.05), (128, 0.1), (1024, 0.1)])
def test_default_learning_rate_scales_up_to_a_limit(global_batch_size: int, rate: float) -> None:
    assert TrainConfig().schedule(global_batch_size=global_batch_size).peak == pytest.approx(rate)


def test_warm_up_removes_the_limit_of_the_default_learning_rate() -> None:
    assert TrainConfig(warmup_epochs=2).schedule(global_batch_size=1024).peak == pytest.approx(0.8)


@pytest.mark.parametrize(("global_batch_size", "rate"), [(64, 0.05), (128, 0.025), (256, 0.0125)])
def test_dist_async_divides_the_default_learning_rate_by_the_machines(global_batch_size: int, rate: float) -> None:
    config = TrainConfig(framework="mxnet", kv_store="dist_async", batch_size_per_node=64)
    assert config.schedule(global_batch_size=global_batch_size).peak == pytest.approx(rate)


@pytest.mark.parametrize(
    ("framework", "kv_store", "distributed"),
    [("torch", "device", False), ("mxnet", "device", False), ("horovod", "horovod", True)],
)
def test_each_framework_has_a_default_kv_store(framework: str, kv_store: str, distributed: bool) -> None:
    config = TrainConfig(framework=framework)
    assert (config.effective_kv_store, config.distributed) == (kv_store, distributed)


def test_explicit_learning_rate_is_not_scaled() -> None:
    assert TrainConfig(lr=0.3).schedule(global_batch_size=4096).peak == 0.3


def test_learning_rate_scales_with_lr_batch_size() -> None:
    config = parse(["--lr", "0.1", "--lr-batch-size", "256", "--warmup-epochs", "5", "--lr-step-epochs", "30,60,80"])
    one, all_64 = config.schedule(global_batch_size=256), config.schedule(global_batch_size=64 * 256)
    assert (one.start, one.peak) == (0.1, 0.1)
    assert all_64.start == 0.1
    assert all_64.peak == pytest.approx(6.4)
    assert all_64.rate(epoch=59, epoch_fraction=0.5) == pytest.approx(0.64)


def test_lr_factor_reduces_the_learning_rate() -> None:
    config = parse(["--lr", "0.4", "--lr-factor", "0.5", "--lr-step-epochs", "2,3"])
    schedule = config.schedule(global_batch_size=64)
    assert [schedule.rate(epoch=epoch, epoch_fraction=0) for epoch in range(4)] == [0.4, 0.4, 0.2, 0.1]


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
    assert folder.augmented == ("resized-crop", "mirror")
    assert replace(folder, augment="none").augmented == ()
    assert replace(folder, random_crop=True).augmented == ("crop",)
    assert TrainConfig().augmented == ()
    assert TrainConfig(augment="standard").augmented == ("crop", "mirror")


OTHER_FIXED_VALUES: Mapping[str, object] = (
    {"network": "resnet20", "framework": "horovod", "batch_size_per_node": 32, "gradient_accumulation": 2}
    | {"lr": 0.1, "lr_batch_size": 32, "warmup_epochs": 1.0, "lr_factor": 0.5, "lr_step_epochs": (1,)}
    | {
        "momentum": 0.5,
        "weight_decay": 0.0,
        "wd_all": True,
        "seed": 1,
        "sync_bn": True,
        "dtype": "bfloat16",
        "fast": "auto",
        "gradient_compression": "fp16",
    }
    | {"dataset": "mnist", "image_shape": (3, 32, 32), "num_classes": 11, "num_examples": 9}
    | {"random_crop": True, "random_mirror": True, "last_batch": "keep"}
    | {"lr_schedule": "cosine", "augment": "standard", "label_smoothing": 0.1}
)
"""Other values of the settings that must stay the same when a run resumes."""
OTHER_FREE_VALUES: Mapping[str, object] = (
    {"gpus": (0,), "num_epochs": 13, "kv_store": "dist_sync", "compile": "1", "deterministic": True}
    | {"model_prefix": "net", "disp_batches": 1, "data_dir": "there", "resume": "never", "checkpoint_seconds": 1.0}
    | {"metrics": "file", "tensorboard": "events", "profile_steps": (1, 2), "profile_dir": "traces"}
    | {"reduction": "buckets"}
    | {"data_train": "c.rec", "data_train_idx": "c.idx", "data_val": "d.rec", "data_val_idx": "d.idx"}
)
"""Other values of the settings that may change when a run resumes."""


@pytest.mark.parametrize("name", [each.name for each in fields(TrainConfig)])
def test_every_setting_that_changes_the_result_is_fixed_on_resume(name: str) -> None:
    changed: Any = (OTHER_FIXED_VALUES if name in OTHER_FIXED_VALUES else OTHER_FREE_VALUES)[name]
    base = TrainConfig(
        lr=0.2 if name == "lr_batch_size" else None,
        dataset="synthetic" if name in ("image_shape", "num_examples") else "digits",
    )
    if name.startswith(("data_train", "data_val")):
        base = replace(base, dataset="recordio", data_train="a.rec", data_val="b.rec")
    other = replace(base, **{name: changed})
    assert (other.settings_fixed_on_resume != base.settings_fixed_on_resume) is (name in OTHER_FIXED_VALUES)


def test_every_setting_has_an_option() -> None:
    known = set(_build_parser().known_options())
    assert {option_name(name) for name in (*FIXED_ON_RESUME, *(each.name for each in fields(TrainConfig)))} <= known


def test_settings_are_checked_without_a_command_line() -> None:
    with pytest.raises(UsageError, match="unknown --kv-store"):
        TrainConfig(kv_store="dist_sink")
