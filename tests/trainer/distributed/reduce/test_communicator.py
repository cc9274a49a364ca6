"""Test the timeouts for silent ranks."""

from datetime import timedelta

import pytest

from trainer.distributed.reduce.reducers import Communicator
from trainer.timeouts import CHECKPOINT_STALL_TIMEOUT_S, RENDEZVOUS_TIMEOUT_S, STEP_TIMEOUT_S


@pytest.mark.parametrize(("compiled", "seconds"), [(False, STEP_TIMEOUT_S), (True, RENDEZVOUS_TIMEOUT_S)])
def test_step_timeout_replaces_the_pause_timeout(compiled: bool, seconds: float) -> None:
    communicator = Communicator(world_size=2)
    assert communicator.timeout_s == RENDEZVOUS_TIMEOUT_S
    communicator.set_timeout(timedelta(seconds=CHECKPOINT_STALL_TIMEOUT_S))
    assert communicator.timeout_s == CHECKPOINT_STALL_TIMEOUT_S
    communicator.use_step_timeout(compiled=compiled)
    assert communicator.timeout_s == seconds
