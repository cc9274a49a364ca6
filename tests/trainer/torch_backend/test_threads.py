"""Test which GPU each thread selects, with a stand-in for torch.cuda."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from trainer.data.batches import prefetch
from trainer.data.synthetic import make_synthetic
from trainer.torch_backend.device_loader import DeviceLoader, load_micro_batches
from trainer.torch_backend.saved_state import Snapshots

CPU, THIRD = torch.device("cpu"), torch.device("cuda", 3)
DATA = make_synthetic((1, 12, 10), samples=8)


class Cuda:
    """Has a current device for each thread, 0 at first, and notes the one that every operation finds."""

    def __init__(self) -> None:
        self._selected: dict[int, int] = {}
        self.found: list[tuple[str, int]] = []

    def set_device(self, device: torch.device) -> None:
        assert device.index is not None
        self._selected[threading.get_ident()] = device.index

    def note(self, what: str) -> None:
        self.found.append((what, self._selected.get(threading.get_ident(), 0)))

    def stream(self, _: object) -> contextlib.AbstractContextManager[None]:
        self.note("stream")
        return contextlib.nullcontext()

    def current_stream(self, _: object) -> object:
        self.note("current_stream")
        return object()


class Stream:
    """Stands in for a stream of a GPU."""

    def __init__(self, _: object = None) -> None:
        pass

    def wait_event(self, _: object) -> None:
        pass


class Event:
    """Is complete as soon as it is recorded."""

    def record(self, _: object) -> None:
        pass

    def query(self) -> bool:
        return True


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    stand_in = Cuda()
    for name in ("set_device", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return stand_in


@pytest.fixture
def loader(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a loader to the third GPU, which notes the thread of each copy."""
    loader: Any = DeviceLoader(DATA, device=CPU, channels_last=False, memory=0)
    monkeypatch.setattr(loader, "_device", THIRD)

    def send(array: Any) -> torch.Tensor:
        cuda.note(threading.current_thread().name.partition("_")[0])
        return torch.from_numpy(array)

    monkeypatch.setattr(loader, "_send", send)
    return loader


def test_loader_thread_selects_its_ranks_gpu(cuda: Cuda, loader: Any) -> None:
    batches = list(prefetch([np.arange(4), np.arange(4, 8)], lambda part: loader(DATA.train, part)))
    assert [labels.tolist() for _, labels in batches] == [part.tolist() for part in np.split(DATA.train.labels, 2)]
    assert set(cuda.found) == {("data", 3)}


def test_micro_batch_thread_selects_its_ranks_gpu(cuda: Cuda, loader: Any) -> None:
    # The first part is loaded with its batch, the others in a thread that each batch starts.
    [(parts, _)] = prefetch([np.arange(8)], lambda indices: load_micro_batches(loader, 4, DATA.train, indices))
    assert np.concatenate([labels for _, labels in parts]).tolist() == DATA.train.labels.tolist()
    assert set(cuda.found) == {("data", 3), ("micro-batch", 3)}


def test_checkpoint_thread_selects_its_ranks_gpu(cuda: Cuda) -> None:
    cuda.set_device(THIRD)
    take = Snapshots(THIRD).begin({"weight": torch.ones(2)}, changing=())
    with ThreadPoolExecutor(max_workers=1) as writer:
        assert writer.submit(take).result()["weight"].tolist() == [1, 1]
    assert {device for _, device in cuda.found} == {3}
    assert "stream" in dict(cuda.found)
