"""Check which files of the trainer a reader opens to follow one training step, by running steps under a profiler."""

import ast
import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
import torch

import trainer.train
from tests.trainer.distributed.rings import joined, on_all
from tests.trainer.networks import perceptron
from trainer.checkpoint.manager import CheckpointManager
from trainer.config.settings import TrainConfig
from trainer.data.synthetic import make_synthetic
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.reduce.reducers import Communicator, Ring
from trainer.progress import Progress
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.train import Trainer

TRAINER = Path(trainer.train.__file__).parent
MAX_FILES = 4
RANKS = 2
STEPS = 2
DATA = make_synthetic((1, 4, 4), samples=STEPS * RANKS)
SETTINGS = StepSettings(learning_rate=0.1, momentum=0.9, weight_decay=0.1)


class StepProfile:
    """Notes the functions that change the numbers of a step, and those that call them, up to Trainer.train_steps.

    The numbers are weights, momenta, gradients and the sums over the ranks, of which loss and flags are a part.
    """

    def __init__(self, backend: TorchBackend) -> None:
        self._backend = backend
        self._before = self._numbers()
        self.files: set[str] = set()
        """Files of these functions, relative to the trainer."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        numbers = self._numbers()
        if numbers == self._before:
            return
        self._before = numbers
        # A call is reported with the frame of the called function, which has not done anything yet.
        functions = [*_callers(frame.f_back if event == "call" else frame)]
        codes = [function.f_code for function in functions]
        if Trainer.train_steps.__code__ in codes:
            names = {Path(code.co_filename) for code in codes[: codes.index(Trainer.train_steps.__code__) + 1]}
            self.files |= {str(name.relative_to(TRAINER)) for name in names if name.is_relative_to(TRAINER)}

    def _numbers(self) -> list[bytes]:
        flat = self._backend._flat
        gradients = [parameter.grad for parameter in flat.parameters if parameter.grad is not None]
        numbers = [flat.weights, flat.momentum_buffers, self._backend._flat_sums, *gradients]
        return [number.detach().numpy().tobytes() for number in numbers]


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def files_of_steps(settings: StepSettings, *, rank: int = 0, ring: Ring | None = None) -> set[str]:
    """Train steps as this rank of several; return the files whose functions take part in them."""
    config = TrainConfig()
    dp = DataParallelGroup(rank=rank, world_size=RANKS)
    network = perceptron(num_classes=DATA.num_classes, image_shape=DATA.image_shape)
    communicator = Communicator(world_size=RANKS, ring=ring)
    backend = TorchBackend(network, settings, device=torch.device("cpu"), dp=dp, communicator=communicator)
    saver = CheckpointManager(config, dp=dp, store=None)
    loop = Trainer(backend=backend, data=DATA, config=config, dp=dp, global_batch_size=RANKS, checkpoints=saver)
    # The first steps load modules, which takes seconds under a profiler.
    loop.train_steps(Progress(), end=STEPS * RANKS)
    profile = StepProfile(backend)
    with profile.recording():
        loop.train_steps(Progress(), end=STEPS * RANKS)
    return profile.files


def listed_files() -> set[str]:
    """Return the files that the docstring of train.py lists for a step."""
    docstring = ast.get_docstring(ast.parse((TRAINER / "train.py").read_text()))
    assert docstring is not None
    return {*re.findall(r"^- (\S+\.py):", docstring, re.MULTILINE)}


def test_step_is_read_in_four_files() -> None:
    assert len(listed_files()) <= MAX_FILES


@pytest.mark.usefixtures("one_thread")
def test_listed_files_contain_a_step_between_cpus() -> None:
    with joined(RANKS) as rings:
        found = on_all(RANKS, lambda rank: files_of_steps(SETTINGS, rank=rank, ring=rings[rank]))
    assert found == [listed_files()] * RANKS


@pytest.fixture
def twin_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create a process group of this process alone, in which a sum adds the values of an equal rank."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda sums: sums.mul_(RANKS))
    yield
    # As in Communicator.close: free DistributedDataParallel before its group.
    gc.collect()
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_thread", "twin_ranks")
def test_listed_files_contain_a_step_between_gpus() -> None:
    # As on GPUs: DistributedDataParallel, and results that are read a step later.
    assert files_of_steps(replace(SETTINGS, ddp=True, is_deferred=True)) == listed_files()
