"""The update, and what a start does without torch.optim."""

from pathlib import Path

import pytest
import torch

from tests.trainer.programs import no_compiler_trainer
from tests.trainer.programs.processes import run
from trainer.torch.optimizer import SGD

STEPS = 6


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 0.0001), (0.9, 0.0), (0.0, 0.01), (0.0, 0.0)])
def test_steps_have_the_bits_of_torchs_own(momentum: float, weight_decay: float, fused: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(10_001, generator=generator)
    mine, other = torch.nn.Parameter(first.clone()), torch.nn.Parameter(first.clone())
    ours = SGD(mine, learning_rate=0.1, momentum=momentum, weight_decay=weight_decay)
    # Where it is not fused, as plain additions and multiplications of whole vectors.
    torchs = torch.optim.SGD([other], lr=0.1, momentum=momentum, weight_decay=weight_decay, fused=fused)
    for step in range(STEPS):
        rate = 0.1 / (step + 1)
        ours.learning_rate = torchs.param_groups[0]["lr"] = rate
        mine.grad = torch.randn(first.shape, generator=generator)
        other.grad = mine.grad.clone()
        ours.step()
        torchs.step()
        if fused:
            assert torch.equal(mine, other), step
        else:
            assert torch.allclose(mine, other, rtol=1e-6, atol=1e-6), step
    if momentum and fused:
        assert torch.equal(ours.momenta, torchs.state[other]["momentum_buffer"])


def test_no_rank_loads_the_compiler(tmp_path: Path) -> None:
    options = ("--benchmark", "1", "--num-examples", "64", "--num-epochs", "1", "--kv-store", "dist_sync")
    run(*options, directory=tmp_path, count=2, program=(str(Path(no_compiler_trainer.__file__)),))
