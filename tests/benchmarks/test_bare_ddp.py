"""Test that the peer of our speed is tuned as PyTorch's documentation of DistributedDataParallel says."""

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness.work import WORK, Work
from benchmarks.train import _bare_ddp
from tests.ports import held_port

WORLD_OF_ONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}


# Torch 2.13 renamed broadcast_buffers; 2.12 knows only the old name.
@pytest.mark.filterwarnings("ignore:`broadcast_buffers` is deprecated:FutureWarning")
def test_bare_script_trains_with_a_tuned_ddp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrapped: list[DistributedDataParallel] = []

    class Recorded(DistributedDataParallel):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            wrapped.append(self)

    monkeypatch.setattr(_bare_ddp, "DistributedDataParallel", Recorded)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setitem(WORK, "lenet", Work(batch_size=2, steps=4, epochs=2, window=2))
    for name, value in WORLD_OF_ONE.items():
        monkeypatch.setenv(name, value)
    with held_port() as port:
        monkeypatch.setenv("MASTER_PORT", str(port))
        _bare_ddp.main("lenet", 1)
    assert capsys.readouterr().out.count(" samples/sec\n") == 4
    [ddp] = wrapped
    assert (ddp.gradient_as_bucket_view, ddp.broadcast_buffers, ddp.static_graph) == (True, False, True)
    assert ddp.bucket_bytes_cap == 2**20
