from datetime import timedelta

import pytest

from trainer.engines.collective import Collective
from trainer.engines.patience import MEETING_S, PAUSE_S, RANKS_S


@pytest.mark.parametrize(("compiled", "seconds"), [(False, RANKS_S), (True, MEETING_S)])
def test_patience_for_a_pause_ends_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, seconds: float
) -> None:
    monkeypatch.setattr("trainer.engines.collective._set_pg_timeout", lambda timeout, group: None)
    ranks = Collective(count=2)
    assert ranks.timeout_s == MEETING_S
    ranks.be_patient(timedelta(seconds=PAUSE_S))
    assert ranks.timeout_s == PAUSE_S
    ranks.expect_steps(compiled=compiled)
    assert ranks.timeout_s == seconds
