import pytest
import torch

from trainer.errors import TrainerError
from trainer.side_stream import SideStream, read, record_event, wait_for

CPU = torch.device("cpu")


class Event:
    """Comes after so many looks."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def query(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def test_what_comes_in_time_is_waited_for() -> None:
    event = Event(looks=3)
    wait_for(event, timeout_s=60)  # type: ignore[arg-type]  # stands in for torch's
    assert event.query()


def test_fails_when_the_device_does_not_come_to_its_end() -> None:
    times = iter([0.0, 59.0, 60.0])
    with pytest.raises(TrainerError, match="the GPU has not ended its work for 60 s, another rank may be lost"):
        wait_for(Event(looks=9), timeout_s=60, clock=lambda: next(times))  # type: ignore[arg-type]  # stands in for torch's


def test_a_cpu_has_done_what_it_was_asked_for_and_copies_are_copies() -> None:
    values, beside = torch.ones(3), SideStream(CPU)
    assert record_event(CPU) is None
    with beside.after(record_event(CPU)):
        copied = read(values, timeout_s=0)
    beside.join()
    values.zero_()
    assert copied.tolist() == [1, 1, 1]
