"""Test the error of 16-bit gradients, in one rank's arithmetic and in a whole run."""

from pathlib import Path

import pytest
import torch

from tests.trainer.distributed.weights import OPTIONS, distance
from tests.trainer.programs.processes import run
from trainer.checkpoint.format import load_checkpoint
from trainer.checkpoint.manager import CheckpointManager
from trainer.config.command_line import parse
from trainer.data.open_dataset import open_data
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.process_groups import ProcessGroups
from trainer.distributed.reduce.compressed import MAX_SCALED, TYPES, _pack, _unpack, all_reduce_compressed
from trainer.distributed.world import World
from trainer.torch_backend.create_backend import create_backend
from trainer.train import Trainer

ROUNDING = {"fp16": 2.0**-11, "bf16": 2.0**-8}
"""Largest rounding error of one number: half a unit in the last place of 11 and 8 significant bits."""


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_number_is_rounded_once_at_any_magnitude(name: str, size: float) -> None:
    rows = size * torch.randn(3, 1001, generator=torch.Generator().manual_seed(0))
    found = _unpack(_pack(rows, TYPES[name]), TYPES[name], 1001)
    assert ((found - rows).abs() <= (ROUNDING[name] + 2.0**-22) * rows.abs() + 2.0**-40 * rows.abs().max()).all()
    assert not torch.equal(found, rows)


@pytest.mark.parametrize("name", TYPES)
def test_values_without_scale_are_sent_unscaled(name: str) -> None:
    tiny = torch.finfo(torch.float32).smallest_normal / MAX_SCALED
    rows = torch.tensor([[0.0, 0.0], [1.0, float("inf")], [float("nan"), 1.0], [tiny, 0.0]])
    found = _unpack(_pack(rows, TYPES[name]), TYPES[name], 2)
    assert torch.equal(found[0], rows[0])
    assert torch.equal(found[1], rows[1])
    assert found[2].isnan().tolist() == [True, False]
    assert found[3].isfinite().all()


TOLERANCE = 1e-4
"""Relative L2 distance of all weights after 20 steps; measured: 6e-6."""


class Wire:
    """Collective operations of rank 0 of three, with equal values on all ranks."""

    ranks = 3

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor, *, group: None) -> None:
        received.copy_(sent[:1].expand_as(received))

    def all_gather(self, gathered: torch.Tensor, own: torch.Tensor, *, group: None) -> None:
        gathered.copy_(own.expand_as(gathered))


@pytest.mark.parametrize("name", TYPES)
def test_error_of_a_sum_is_at_most_two_roundings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    wire = Wire()
    monkeypatch.setattr("torch.distributed.get_world_size", lambda group: wire.ranks)
    monkeypatch.setattr("torch.distributed.all_to_all_single", wire.all_to_all)
    monkeypatch.setattr("torch.distributed.all_gather_into_tensor", wire.all_gather)
    # Each third is the same, so that rank 0's part stands for all; the last one is not full.
    third = torch.randn(100, generator=torch.Generator().manual_seed(0))
    vector = third.repeat(3)[:-1]
    sums = vector.clone()
    all_reduce_compressed(sums, TYPES[name], groups=ProcessGroups())
    assert ((sums - 3 * vector).abs() <= (2 * ROUNDING[name] + 2.0**-20) * 3 * vector.abs() + 1e-9).all()
    vector[7] = float("nan")
    all_reduce_compressed(vector, TYPES[name], groups=ProcessGroups())
    assert vector[7].isnan()


@pytest.mark.usefixtures("one_thread")
def test_compressed_ranks_agree_and_nearly_match_one_process(tmp_path: Path) -> None:
    options = (*OPTIONS, "--num-examples", "300", "--last-batch", "keep", "--gc-type", "fp16")
    ranks = run(*options, "--batch-size", "15", directory=tmp_path, count=2)
    assert ranks[0].digests == ranks[1].digests
    config = parse([*options, "--batch-size", "30", "--resume", "never"])
    backend = create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.001)
    policy = CheckpointManager(config, dp=DataParallelGroup(), store=None)
    Trainer(
        backend=backend,
        data=open_data(config),
        config=config,
        dp=DataParallelGroup(),
        global_batch_size=30,
        checkpoints=policy,
    ).train()
    # Without compression, they differ by 1e-7.
    assert 1e-6 < distance(load_checkpoint(tmp_path / "net-0002.npz").state.weights, backend.weights()) < TOLERANCE


@pytest.mark.parametrize("name", TYPES)
def test_small_gradient_beside_a_large_one_is_not_lost(name: str) -> None:
    # float16's smallest normal number is 2^-14, and the largest one sent is 2^15.
    rows = 1.2345 * 2.0 ** -torch.arange(29.0).expand(2, -1)
    found = _unpack(_pack(rows, TYPES[name]), TYPES[name], 29)
    assert ((found - rows).abs() <= (ROUNDING[name] + 2.0**-22) * rows.abs()).all()
