"""Test that the timeouts cover downloads and checkpoints."""

import pytest

from trainer.config.settings import TrainConfig
from trainer.s3 import TRANSFER_TIMEOUT_S
from trainer.timeouts import FETCH_S, RENDEZVOUS_S, STEP_S, WRITE_S, rendezvous_s, shutdown_timeout_s

DATA = {"data_dir": "s3://bucket/data"}
PREFIX = {"model_prefix": "s3://bucket/net"}


def config(options: dict[str, str], *, framework: str) -> TrainConfig:
    return TrainConfig(framework=framework, **options)  # type: ignore[arg-type]  # options of any kind


@pytest.mark.parametrize("framework", ["torch", "mxnet", "horovod"])
@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, RENDEZVOUS_S),
        (DATA, RENDEZVOUS_S + FETCH_S),
        (PREFIX, RENDEZVOUS_S + TRANSFER_TIMEOUT_S),
        (DATA | PREFIX, FETCH_S + TRANSFER_TIMEOUT_S),
    ],
)
def test_rendezvous_timeout_covers_downloads_of_one_rank(framework: str, options: dict[str, str], least: float) -> None:
    assert rendezvous_s(config(options, framework=framework)) >= least


def test_shutdown_timeout_covers_two_checkpoints_and_their_uploads() -> None:
    assert shutdown_timeout_s(TrainConfig()) >= 2 * WRITE_S + STEP_S
    assert shutdown_timeout_s(config(PREFIX, framework="torch")) >= 2 * WRITE_S + 3 * TRANSFER_TIMEOUT_S
