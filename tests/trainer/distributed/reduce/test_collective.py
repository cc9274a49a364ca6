from datetime import timedelta

import pytest

from trainer.distributed.reduce.all_reduce import Collective
from trainer.timeouts import PAUSE_S, RENDEZVOUS_S, STEP_S


@pytest.mark.parametrize(("compiled", "seconds"), [(False, STEP_S), (True, RENDEZVOUS_S)])
def test_step_timeout_replaces_the_pause_timeout(compiled: bool, seconds: float) -> None:
    collective = Collective(count=2)
    assert collective.timeout_s == RENDEZVOUS_S
    collective.set_timeout(timedelta(seconds=PAUSE_S))
    assert collective.timeout_s == PAUSE_S
    collective.use_step_timeout(compiled=compiled)
    assert collective.timeout_s == seconds
