"""Test that a rank that does not come, or is lost, is reported in one line."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch

from tests.ports import held_port
from trainer.distributed.rendezvous import join_ranks, report_lost_ranks
from trainer.distributed.world import World
from trainer.errors import TrainerError, shorten_torch_message

CPU = torch.device("cpu")


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as port:
        yield port


def test_missing_ranks_time_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    with pytest.raises(TrainerError, match=r"rendezvous of 2 ranks at 127.0.0.1:.* or was silent for 1 s") as caught:
        join_ranks(CPU, world=World(rank=0, world_size=2), timeout=timedelta(seconds=1))
    assert "\n" not in str(caught.value)


def test_missing_rank_0_times_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    with pytest.raises(TrainerError, match=f"rank 0 does not answer at 127.0.0.1:{port} for 1 s"):
        join_ranks(CPU, world=World(rank=1, world_size=2), timeout=timedelta(seconds=1))


def test_torch_messages_are_shortened() -> None:
    message = "[/build/gloo/pair.cc:553] Connection closed by peer [10.0.0.1]:4. This is typically\ncaused by"
    assert shorten_torch_message(message) == "Connection closed by peer [10.0.0.1]:4"


def test_nccl_error_is_one_line_with_its_reason() -> None:
    message = (
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a "
        "network error, NCCL version 2.27.5\nncclRemoteError: A call failed possibly due to a network error.\n"
        "Last error:\nsocketProgress: Connection closed by remote peer ip-10-0-0-7<42310>\n"
    )
    lost = report_lost_ranks("the all-reduce", timeout=timedelta(seconds=60))
    with pytest.raises(TrainerError) as caught, lost:
        raise torch.distributed.DistBackendError(message)
    assert str(caught.value) == (
        "the all-reduce failed: another rank ended, or was silent for 60 s: remote process exited or "
        "there was a network error, NCCL version 2.27.5: "
        "socketProgress: Connection closed by remote peer ip-10-0-0-7<42310>"
    )
