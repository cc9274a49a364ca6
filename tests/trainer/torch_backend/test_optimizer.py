"""Test the update, and that a rank starts without torch.optim."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer.programs import no_compiler_trainer
from tests.trainer.programs.processes import run
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.optimizer import SGD, ParamGroup

STEPS = 6


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 0.0001), (0.9, 0.0), (0.0, 0.01), (0.0, 0.0)])
def test_steps_match_torch_sgd_bit_for_bit(momentum: float, weight_decay: float, fused: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(10_001, generator=generator)
    trainer_weights, torch_weights = torch.nn.Parameter(first.clone()), torch.nn.Parameter(first.clone())
    momenta = torch.zeros_like(first)
    trainer_sgd = SGD([ParamGroup([trainer_weights], [momenta], weight_decay)], learning_rate=0.1, momentum=momentum)
    # Where it is not fused, as plain additions and multiplications of whole vectors.
    torch_sgd = torch.optim.SGD([torch_weights], lr=0.1, momentum=momentum, weight_decay=weight_decay, fused=fused)
    for step in range(STEPS):
        rate = 0.1 / (step + 1)
        trainer_sgd.learning_rate = torch_sgd.param_groups[0]["lr"] = rate
        trainer_weights.grad = torch.randn(first.shape, generator=generator)
        torch_weights.grad = trainer_weights.grad.clone()
        trainer_sgd.step()
        torch_sgd.step()
        if fused:
            assert torch.equal(trainer_weights, torch_weights), step
        else:
            assert torch.allclose(trainer_weights, torch_weights, rtol=1e-6, atol=1e-6), step
    if momentum and fused:
        assert torch.equal(momenta, torch_sgd.state[torch_weights]["momentum_buffer"])


@pytest.mark.parametrize("decay_all", [False, True])
def test_biases_and_batch_norm_factors_decay_only_with_wd_all(decay_all: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, kernel_size=3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    settings = StepSettings(learning_rate=0.5, momentum=0.9, weight_decay=0.5, decay_all=decay_all)
    backend = TorchBackend(model, settings, device=torch.device("cpu"), dp=DataParallelGroup())
    before = {name: np.asarray(value, np.float32) for name, value in backend.weights().items()}
    # Without samples the gradients are 0.
    backend.forward_backward(np.zeros((0, 1, 4, 4), np.float32), np.zeros(0, np.int64))
    backend.optimizer_step(num_samples=1)
    for name, value in backend.weights().items():
        decays = name.endswith(("weight", "bias")) and (decay_all or name in ("0.weight", "3.weight"))
        assert np.allclose(value, before[name] * (0.75 if decays else 1)), name
    # The momentum lies in the network's order, as in checkpoints of versions that let all decay.
    momentum = torch.from_numpy(np.asarray(backend.state().optimizer["momentum"]))
    own = [parameter.numel() for parameter in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    for name, part in zip(names, torch.split(momentum, own), strict=True):
        decays = decay_all or name in ("0.weight", "3.weight")
        assert np.allclose(part.numpy(), 0.5 * before[name].ravel() * decays), name


def test_ranks_do_not_load_the_compiler(tmp_path: Path) -> None:
    options = ("--benchmark", "1", "--num-examples", "64", "--num-epochs", "1", "--kv-store", "dist_sync")
    run(*options, directory=tmp_path, count=2, program=(str(Path(no_compiler_trainer.__file__)),))
