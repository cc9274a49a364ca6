"""Test that the settings that change a run's result are those that must stay the same when it resumes."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from trainer.config.settings import TrainConfig

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


@pytest.mark.parametrize("name", [field.name for field in fields(TrainConfig)])
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
