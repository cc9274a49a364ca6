"""Test DistributedDataParallel on CPUs, over gloo: its results match those of our own reducers."""

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from tests.trainer.distributed.weights import distance
from tests.trainer.networks import Skipping, batch_norm_network
from tests.trainer.programs import bucketed_trainer, freed_ddp
from tests.trainer.programs.processes import REPOSITORY, run, running
from trainer.backend import Weights
from trainer.checkpoint.format import load_checkpoint
from trainer.config.settings import TrainConfig
from trainer.distributed.batch_norm import batch_norms
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.reduce.reducers import Communicator, DdpReducer
from trainer.errors import TrainerError, UsageError
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.compute_mode import ComputeMode
from trainer.torch_backend.flat_params import FlatParams, bind_gradients
from trainer.torch_backend.optimizer import FIRST_SCALE, SGD
from trainer.torch_backend.reducer_setup import choose_reduction
from trainer.torch_backend.saved_state import SCALE

RANKS = 2
BATCH_SIZE = 11
STEPS = 4
# A last batch of one sample, in two parts: rank 0 has no sample, and rank 1 none of the second part.
SAMPLES = (STEPS - 1) * RANKS * 2 * BATCH_SIZE + 1
# The rate is low, because larger steps make two correct runs diverge.
OPTIONS = (
    *("--network", "tests.trainer.networks:batch_norm_network", "--lr", "0.01", "--kv-store", "dist_sync"),
    *("--benchmark", "1", "--image-shape", "3,12,12", "--num-examples", str(SAMPLES), "--last-batch", "keep"),
    *("--batch-size", str(BATCH_SIZE), "--gradient-accumulation", "2", "--num-epochs", "2"),
    *("--disp-batches", "1", "--model-prefix", "net"),
)
PROGRAM = (str(Path(bucketed_trainer.__file__)),)
TOLERANCE = 1e-5
FLOAT16_TOLERANCE = 1e-4
DDP_SETTINGS = StepSettings(learning_rate=0.1, momentum=0.9, weight_decay=0, ddp=True)
CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


def final(directory: Path) -> Weights:
    return load_checkpoint(directory / "net-0002.npz").state.weights


def test_ddp_matches_the_ring_after_an_interruption(tmp_path: Path) -> None:
    ring, ddp = tmp_path / "ring", tmp_path / "ddp"
    for directory in (ring, ddp):
        directory.mkdir()
    run(*OPTIONS, directory=ring, count=RANKS)
    options = (*OPTIONS, "--reduction", "ddp")
    # This is in the second step of the second epoch.
    stopped = {bucketed_trainer.LAST: str(STEPS + 2)}
    with running(*options, directory=ddp, count=RANKS, program=PROGRAM, variables=stopped) as interrupted:
        assert [rank.wait() for rank in interrupted] == [128 + signal.SIGTERM] * RANKS
    ranks = run(*options, directory=ddp, count=RANKS, program=PROGRAM)
    assert "resuming at epoch 1" in ranks[0].log.read_text()
    assert len({rank.digests[-1] for rank in ranks}) == 1
    assert distance(final(ddp), final(ring)) < TOLERANCE


def make_ddp(model: nn.Module) -> DdpReducer:
    return DdpReducer(model, torch.zeros(3), [*model.parameters()], communicator=Communicator(world_size=1))


@pytest.fixture
def single_process_group(tmp_path: Path) -> Iterator[None]:
    """Create a process group with this process as its only member."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_ddp_matches_the_ring_with_sync_bn_in_float16(tmp_path: Path) -> None:
    found = []
    for reduction in ("ring", "ddp"):
        directory = tmp_path / reduction
        directory.mkdir()
        options = (
            "--network",
            "tests.trainer.networks:normalized_perceptron",
            "--sync-bn",
            "--dtype",
            "float16",
        )
        ranks = run(*OPTIONS, *options, "--reduction", reduction, directory=directory, count=RANKS)
        assert ranks[0].digests == ranks[1].digests
        found.append(final(directory))
        # No step has overflowed, which would have changed no weights.
        scale = load_checkpoint(directory / "net-0002.npz").state.optimizer[SCALE]
        assert scale.tolist() == [FIRST_SCALE, 2 * STEPS]
    # Sums in another order may be rounded to another of float16's numbers, which have 11 significant bits.
    assert distance(*found) < FLOAT16_TOLERANCE


@pytest.mark.usefixtures("single_process_group")
def test_step_sums_the_gradients_and_one_small_tensor() -> None:
    model = batch_norm_network(num_classes=10, image_shape=(1, 12, 12))
    gradients = sum(parameter.numel() for parameter in model.parameters())
    running_statistics = sum(2 * module.num_features for module in batch_norms(model))
    backend = TorchBackend(model, DDP_SETTINGS, device=CPU, dp=DataParallelGroup(world_size=RANKS))

    def step(samples: int) -> None:
        backend.forward_backward(np.ones((samples, 1, 12, 12), np.float32), np.zeros(samples, np.int64))
        backend.optimizer_step(num_samples=4)

    # DistributedDataParallel sends its new order of buckets once, in the second step.
    step(4)
    step(4)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step(4)
        step(0)
    sent = [(event.name, event.input_shapes) for event in recorded.events() if event.name.startswith("gloo:")]
    loss, flags = 1, 2
    small = running_statistics + loss + flags
    assert sent == [("gloo:all_reduce", [[gradients]]), ("gloo:all_reduce", [[small]])] * 2


@pytest.mark.parametrize(
    ("script", "options", "ranks"),
    [
        ("trainer", (*OPTIONS, "--num-epochs", "1", "--reduction", "ddp"), RANKS),
        (str(REPOSITORY / "examples/torchrun_ddp.py"), ("--epochs", "1"), 1),
    ],
    ids=["trainer", "example"],
)
def test_model_is_freed_before_its_group(tmp_path: Path, script: str, options: tuple[str, ...], ranks: int) -> None:
    digits = {"DIGITS": str(REPOSITORY / "trainer/data/bundled")}
    program = (str(Path(freed_ddp.__file__)),)
    run(script, *options, directory=tmp_path, count=ranks, program=program, variables=digits)


@pytest.mark.usefixtures("single_process_group")
def test_gradients_are_views_of_the_bucket() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    ddp = make_ddp(model)
    ddp.begin()
    with ddp.backward_pass(is_last=True):
        torch.autograd.backward(ddp.module(torch.ones(2, 4)).sum())
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert len(gradients) == 4
    assert len({gradient.untyped_storage().data_ptr() for gradient in gradients}) == 1


@pytest.mark.usefixtures("single_process_group")
def test_skipped_layer_is_reported() -> None:
    ddp = make_ddp(Skipping(num_classes=3, image_shape=(1, 4, 4)))
    ddp.begin()
    with ddp.backward_pass(is_last=True):
        torch.autograd.backward(ddp.module(torch.ones(2, 1, 4, 4)).sum())
    with pytest.raises(TrainerError, match="a parameter was unused in this step's forward pass"):
        ddp.finish()


@pytest.mark.usefixtures("single_process_group")
def test_compiled_network_is_split_at_the_bucket_boundaries(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compile_network = torch.compile
    monkeypatch.setattr("torch.compile", lambda model, **_: compile_network(model, backend=backend))
    # Each layer has 1.4 MB, and the first bucket 1 MB.
    model = nn.Sequential(nn.Flatten(), nn.Linear(600, 600), nn.Linear(600, 600))
    compiled = TorchBackend(
        model, DDP_SETTINGS, device=CPU, dp=DataParallelGroup(world_size=RANKS), mode=ComputeMode(compile_mode="1")
    )
    compiled.forward_backward(np.ones((2, 1, 20, 30), np.float32), np.zeros(2, np.int64))
    assert len(graphs) == 2


def test_killed_rank_ends_the_others(tmp_path: Path) -> None:
    options = ("--kv-store", "dist_sync", "--num-epochs", "1000", "--disp-batches", "1", "--reduction", "ddp")
    with running(*options, directory=tmp_path, count=2) as ranks:
        ranks[0].wait_for_log("Batch [1]")
        ranks[1].process.kill()
        assert ranks[0].wait() == 1
    last_line = ranks[0].log.read_text().splitlines()[-1]
    assert last_line.startswith("rank 0/2 trainer: the all-reduce failed: another rank ended")


def test_gpus_default_to_ddp_unless_an_option_rules_it_out() -> None:
    assert choose_reduction(TrainConfig(), GPU) == "ddp"
    assert choose_reduction(TrainConfig(), CPU) == "ring"
    for config in (
        TrainConfig(deterministic=True),
        TrainConfig(gradient_compression="fp16"),
        TrainConfig(reduction="buckets"),
    ):
        assert choose_reduction(config, GPU) == "buckets"
    with pytest.raises(UsageError, match="--reduction ring requires CPUs"):
        choose_reduction(TrainConfig(reduction="ring"), GPU)


@pytest.mark.parametrize("channels_last", [False, True])
def test_update_of_separate_tensors_equals_the_flat_update(channels_last: bool) -> None:
    images = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    results = []
    for is_flat in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, kernel_size=3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))
        flat = FlatParams(model, decay_all=False)
        flat.bind(channels_last=channels_last)
        gradients = torch.zeros_like(flat.weights)
        groups = flat.flat_groups(gradients, weight_decay=0.5) if is_flat else flat.groups(weight_decay=0.5)
        optimizer = SGD(groups, learning_rate=0.1, momentum=0.9)
        for _ in range(2):
            gradients.zero_()
            model.zero_grad()
            if is_flat:
                bind_gradients(flat.parameters, gradients, channels_last=channels_last)
            torch.autograd.backward(model(images).square().sum())
            optimizer.step()
        results.append(flat.weights.clone())
    # Convolutions may round differently into a gradient of another layout.
    one, other = results
    assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
