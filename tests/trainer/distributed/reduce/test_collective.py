from datetime import timedelta

import pytest

from trainer.distributed.reduce.collective import Collective
from trainer.timeouts import PAUSE_S, RENDEZVOUS_S, STEP_S


@pytest.mark.parametrize(("compiled", "seconds"), [(False, STEP_S), (True, RENDEZVOUS_S)])
def test_a_longer_timeout_for_a_pause_ends_with_the_next_step(compiled: bool, seconds: float) -> None:
    collective = Collective(count=2)
    assert collective.timeout_s == RENDEZVOUS_S
    collective.set_timeout(timedelta(seconds=PAUSE_S))
    assert collective.timeout_s == PAUSE_S
    collective.expect_steps(compiled=compiled)
    assert collective.timeout_s == seconds
