"""Test that a step's result is returned once, one step late if deferred."""

from dataclasses import replace

import pytest
import torch

from trainer.backend import StepFlags, StepResult
from trainer.errors import TrainerError
from trainer.torch_backend.deferred_results import DeferredResults

FIRST = torch.tensor([1.5, 0.0, 1.0, 3.0])
SECOND = torch.tensor([2.5, 2.0, 0.0, 4.0])
FIRST_RESULT = StepResult(loss_sum=1.5, correct=3, flags=StepFlags(stop=True))
SECOND_RESULT = StepResult(loss_sum=2.5, correct=4, flags=StepFlags(save=True))


def test_undeferred_result_is_read_at_once() -> None:
    results = DeferredResults(is_deferred=False)
    assert results.push(FIRST, timeout_s=1) == FIRST_RESULT
    assert results.take(timeout_s=1) is None


def test_deferred_result_is_returned_once_a_step_later_or_by_take() -> None:
    results = DeferredResults(is_deferred=True)
    own = FIRST.clone()
    assert results.push(own, timeout_s=1) is None
    own.zero_()
    assert results.push(SECOND, timeout_s=1) == replace(FIRST_RESULT, delay_steps=1)
    assert results.take(timeout_s=1) == SECOND_RESULT
    assert results.take(timeout_s=1) is None
    assert results.push(FIRST, timeout_s=1) is None


def test_endless_step_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        def query(self) -> bool:
            return False

    results = DeferredResults(is_deferred=True)
    monkeypatch.setattr("trainer.torch_backend.deferred_results.record_event", lambda device: Hanging())
    results.push(FIRST, timeout_s=60)
    with pytest.raises(TrainerError, match="the GPU has not finished its work within 0 s, another rank may be lost"):
        results.take(timeout_s=0)
