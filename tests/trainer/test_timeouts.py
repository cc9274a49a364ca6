"""Test that the timeouts cover downloads and checkpoints."""

import pytest

from trainer.config.settings import TrainConfig
from trainer.s3 import TRANSFER_TIMEOUT_S
from trainer.timeouts import (
    DOWNLOAD_TIMEOUT_S,
    RENDEZVOUS_TIMEOUT_S,
    STEP_TIMEOUT_S,
    WRITE_TIMEOUT_S,
    rendezvous_timeout_s,
    shutdown_timeout_s,
)

DATA = {"data_dir": "s3://bucket/data"}
PREFIX = {"model_prefix": "s3://bucket/net"}


def config(options: dict[str, str], *, framework: str) -> TrainConfig:
    return TrainConfig(framework=framework, **options)  # type: ignore[arg-type]  # options of any kind


@pytest.mark.parametrize("framework", ["torch", "mxnet", "horovod"])
@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, RENDEZVOUS_TIMEOUT_S),
        (DATA, RENDEZVOUS_TIMEOUT_S + DOWNLOAD_TIMEOUT_S),
        (PREFIX, RENDEZVOUS_TIMEOUT_S + TRANSFER_TIMEOUT_S),
        (DATA | PREFIX, DOWNLOAD_TIMEOUT_S + TRANSFER_TIMEOUT_S),
    ],
)
def test_rendezvous_timeout_covers_downloads_of_one_rank(framework: str, options: dict[str, str], least: float) -> None:
    assert rendezvous_timeout_s(config(options, framework=framework)) >= least


def test_shutdown_timeout_covers_two_checkpoints_and_their_uploads() -> None:
    assert shutdown_timeout_s(TrainConfig()) >= 2 * WRITE_TIMEOUT_S + STEP_TIMEOUT_S
    assert shutdown_timeout_s(config(PREFIX, framework="torch")) >= 2 * WRITE_TIMEOUT_S + 3 * TRANSFER_TIMEOUT_S
