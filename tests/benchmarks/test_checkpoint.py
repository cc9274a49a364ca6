"""Test that saves are compared with torch.distributed.checkpoint's async_save of the same state."""

import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import state_dict_loader

from benchmarks.train import checkpoint
from benchmarks.train.checkpoint import CONFIGS, Rounds, measure
from trainer.config.settings import TrainConfig
from trainer.torch_backend.backend import TorchBackend


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_async_save_writes_the_state_that_ours_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The trainer would change this process's number of threads.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    states: list[dict[str, torch.Tensor]] = []
    real = checkpoint.state_tensors

    def state_tensors(backend: TorchBackend) -> dict[str, torch.Tensor]:
        states.append(real(backend))
        return states[-1]

    monkeypatch.setattr(checkpoint, "state_tensors", state_tensors)
    rounds = measure(CONFIGS["_lenet"], tmp_path, 1)
    assert len(rounds.async_stall_s) == len(rounds.async_cost_s) == len(rounds.stall_s) == 1
    assert rounds.async_stall_s[0] > 0
    # Each round saves twice; only the last save is kept.
    [last] = (tmp_path / "async").iterdir()
    assert last.name == "4"
    found = {name: torch.zeros_like(value) for name, value in states[-1].items()}
    state_dict_loader.load(found, checkpoint_id=last, no_dist=True)
    assert all(torch.equal(value, states[-1][name]) for name, value in found.items())
    assert sum(value.numel() for value in found.values()) == 2 * 431_080


def test_async_saves_times_are_divided_by_torch_saves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(_: TrainConfig, directory: Path, count: int) -> Rounds:
        assert directory.is_dir()
        assert count == 3
        return Rounds(
            stall_s=[0.1, 0.2, 0.3],
            torch_save_s=[2.0, 2.0, 9.0],
            total_cost_s=[1.0, 1.0, 1.0],
            step_s=[0.5, 0.5, 0.5],
            async_stall_s=[0.4, 0.5, 0.6],
            async_cost_s=[2.0, 3.0, 4.0],
        )

    monkeypatch.setattr(checkpoint, "measure", measured)
    monkeypatch.setattr(sys, "argv", ["checkpoint", "--rounds", "3"])
    assert checkpoint.main() == 0
    of_one_network = [
        "checkpoint_stall{} 0.100 ratio",
        "checkpoint_cost{} 0.50 ratio",
        "checkpoint_stall_async_save{} 0.250 ratio",
        "checkpoint_cost_async_save{} 1.50 ratio",
    ]
    assert capsys.readouterr().out.splitlines() == [
        line.format(name) for name in ("", "_lenet") for line in of_one_network
    ]
