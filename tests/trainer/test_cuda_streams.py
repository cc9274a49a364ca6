"""Test waiting for work on a GPU, with fake events."""

import pytest
import torch

from trainer.cuda_streams import SideStream, copy_to_host, record_event, wait_for
from trainer.errors import TrainerError

CPU = torch.device("cpu")


class Event:
    """Completes after this many queries."""

    def __init__(self, queries: int) -> None:
        self._queries = queries

    def query(self) -> bool:
        self._queries -= 1
        return self._queries < 0


def test_wait_for_returns_when_the_event_completes() -> None:
    event = Event(queries=3)
    wait_for(event, timeout_s=60)  # type: ignore[arg-type]  # stands in for torch's
    assert event.query()


def test_wait_for_times_out() -> None:
    times = iter([0.0, 59.0, 60.0])
    with pytest.raises(TrainerError, match="the GPU has not finished its work within 60 s, another rank may be lost"):
        wait_for(Event(queries=9), timeout_s=60, clock=lambda: next(times))  # type: ignore[arg-type]  # stands in for torch's


def test_cpu_has_no_events_and_to_host_copies() -> None:
    values, side_stream = torch.ones(3), SideStream(CPU)
    assert record_event(CPU) is None
    with side_stream.after(record_event(CPU)):
        copied = copy_to_host(values, timeout_s=0)
    side_stream.join()
    values.zero_()
    assert copied.tolist() == [1, 1, 1]
