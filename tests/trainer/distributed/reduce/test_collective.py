"""Test the timeouts for silent ranks."""

from datetime import timedelta

import pytest

from trainer.distributed.reduce.reducers import Collective
from trainer.timeouts import CHECKPOINT_STALL_S, RENDEZVOUS_S, STEP_S


@pytest.mark.parametrize(("compiled", "seconds"), [(False, STEP_S), (True, RENDEZVOUS_S)])
def test_step_timeout_replaces_the_pause_timeout(compiled: bool, seconds: float) -> None:
    collective = Collective(world_size=2)
    assert collective.timeout_s == RENDEZVOUS_S
    collective.set_timeout(timedelta(seconds=CHECKPOINT_STALL_S))
    assert collective.timeout_s == CHECKPOINT_STALL_S
    collective.use_step_timeout(compiled=compiled)
    assert collective.timeout_s == seconds
