from collections import Counter

import pytest

from local.chaos.job_rounds import KINDS, MOMENTS, Ending, Round, Strike, Told, draw, judge

WAITS = "launch: w2: lost: silent for 20 s; waiting at most 5 s for 3 nodes"
AGAIN = "launch: restart 1 of 3 on 2 of 3 nodes: w1, w3"


def test_a_seed_gives_the_same_rounds() -> None:
    assert draw(7, rounds=10, slots=[1, 2, 3]) == draw(7, rounds=10, slots=[1, 2, 3])
    assert draw(7, rounds=10, slots=[1, 2, 3]) != draw(8, rounds=10, slots=[1, 2, 3])


@pytest.mark.parametrize("seed", range(20))
def test_fifty_rounds_are_of_every_kind_and_at_every_moment_and_on_every_node(seed: int) -> None:
    strikes = draw(seed, rounds=50, slots=[1, 2, 3])
    moments = Counter(one.moment for strike in strikes for one in strike.rounds)
    assert sum(moments.values()) == 50
    assert all(moments[moment] >= 10 for moment in MOMENTS)
    assert Counter(strike.kind for strike in strikes).keys() == set(KINDS)
    assert Counter(strike.slot for strike in strikes).keys() == {1, 2, 3}


@pytest.mark.parametrize("seed", range(20))
def test_ten_rounds_have_every_kind_of_fault_and_every_node(seed: int) -> None:
    strikes = draw(seed, rounds=10, slots=[1, 2, 3])
    assert {strike.kind for strike in strikes} == set(KINDS)
    assert {strike.slot for strike in strikes} == {1, 2, 3}
    assert sum(one.moment == "meeting" for strike in strikes for one in strike.rounds) >= 3


def ranks(world: int, *, done: int) -> list[str]:
    return [*(f"w{rank} [0] meets {world}" for rank in range(world)), *(f"w{rank} [0] done" for rank in range(done))]


BEFORE = [(-2.0, line) for line in ranks(3, done=0)]
"""Output of a job whose ranks ran when the fault came."""


def told(
    *parts: list[str],
    code: int | None = 0,
    at: float = 30.0,
    ended_s: float | None = 40.0,
    state: str | None = "",
    recorded: int | None = -1,
    before: list[tuple[float, str]] = BEFORE,
) -> Told:
    """Build the outcome of a job with this output after the fault; by default its record agrees with its session."""
    state = ("FAILED" if code else "SUCCEEDED") if state == "" else state
    ending = None if state is None else Ending(state=state, exit_code=code if recorded == -1 else recorded)
    lines = [*before, *((at, line) for part in parts for line in part)]
    return Told(lines=lines, ended_s=ended_s, code=code, ending=ending)


def verdict(said: Told, wish: str, *, slot: int = 2, kind: str = "freeze", moment: str = "stepping") -> list[str]:
    one = Round(moment=moment, fraction=0.5, wish=wish)  # type: ignore[arg-type]  # strings of parametrize
    strike = Strike(kind=kind, slot=slot, rounds=(one,))  # type: ignore[arg-type]  # strings of parametrize
    return judge(said, one, strike=strike, whole_s=35.0)


@pytest.mark.parametrize(("said", "wish"), [
    (told(code=1), "end"),
    (told(code=9), "end"),
    (told([WAITS, AGAIN], ranks(2, done=2)), "fewer"),
    (told([WAITS, AGAIN], ranks(3, done=3), at=90.0), "all"),
])  # fmt: skip
def test_a_job_that_does_as_it_was_asked_to_is_right(said: Told, wish: str) -> None:
    assert verdict(said, wish) == []


@pytest.mark.parametrize(("said", "wish", "wrong"), [
    (told(code=None, ended_s=None), "end", "it never ended"),
    (told(ranks(3, done=2)), "end", "it ended with 0, and 2 of 3 ranks were done"),
    (told(before=[]), "end", "its ranks did not run when the fault came"),
    (told(code=137), "end", "it ended with 137, neither 1 nor 9"),
    (told(code=1, ended_s=61.0), "end", "it ended 61 s after the fault"),
    (told(code=1, ended_s=-1.0), "end", "it ended before the fault"),
    (told(code=1), "fewer", "it ended with 1, and should have started again"),
    (told([AGAIN], ranks(3, done=3)), "end", "it started again, and should have ended"),
    (told([WAITS, AGAIN], ranks(1, done=1)), "fewer", "it ended on 1 nodes, 2 were asked for"),
    (told([WAITS, AGAIN], ranks(2, done=2)), "all", "it ended on 2 nodes, 3 were asked for"),
    (told([AGAIN], ranks(2, done=2), at=61.0), "fewer", "it started again 61 s after the fault"),
    (told([AGAIN], ranks(3, done=3), at=96.0), "all", "it started again 96 s after the fault"),
    (told(code=1, state=None), "end", "it has no record"),
    (told(code=1, state="RUNNING"), "end", "it ended with 1, and its record says RUNNING, 1"),
    (told(code=1, state="CANCELLED"), "end", "it ended with 1, and its record says CANCELLED, 1"),
    (told(code=1, recorded=9), "end", "it ended with 1, and its record says FAILED, 9"),
])  # fmt: skip
def test_whatever_else_a_job_does_is_wrong(said: Told, wish: str, wrong: str) -> None:
    assert wrong in verdict(said, wish)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["meeting", "stepping"])
@pytest.mark.parametrize("wish", ["end", "fewer", "all"])
def test_no_job_goes_on_when_a_rank_of_it_was_struck(kind: str, moment: str, wish: str) -> None:
    # Without a heartbeat timeout the ranks would continue as soon as the fault is over.
    unmoved = told([f"w{rank} [0] done" for rank in range(3)])
    assert "it went on as if nothing had happened to its ranks" in verdict(unmoved, wish, kind=kind, moment=moment)


def test_a_job_that_had_no_ranks_yet_may_go_on() -> None:
    later = told(ranks(3, done=3), before=[])
    assert verdict(later, "end", moment="connecting") == []
    assert verdict(told([f"w{rank} [0] done" for rank in range(3)]), "end", moment="connecting") != []


def test_of_a_job_whose_launcher_was_struck_only_what_it_can_know_is_asked() -> None:
    alone = told(["launch: w2: lost: silent for 20 s; not restarted on 1 of at least 2 nodes; w2: no answer"], code=1)
    assert verdict(alone, "fewer", slot=1, kind="partition") == []
    assert verdict(alone, "fewer", slot=2, kind="partition") != []
    assert verdict(told(code=1), "fewer", slot=1, kind="freeze") != []
    assert verdict(told(code=None, ended_s=None), "end", slot=1, kind="freeze") == ["it never ended"]
    unmoved = told([f"w{rank} [0] done" for rank in range(3)])
    assert verdict(unmoved, "end", slot=1, kind="freeze") == ["it went on as if nothing had happened to its ranks"]


def test_a_lost_session_excuses_no_job_that_had_begun() -> None:
    lost = told(code=255, state="FAILED", recorded=1)
    assert verdict(lost, "fewer", slot=1, kind="partition") != []
    assert verdict(lost, "fewer", slot=1, kind="partition", moment="connecting") == []
    # A detached job needs no session: its record is complete.
    assert verdict(lost, "end", slot=1, kind="partition", moment="meeting") == []
    assert verdict(told(code=0, state="FAILED", recorded=137), "end", moment="meeting") != []


@pytest.mark.parametrize(("moment", "state", "is_right"), [
    ("meeting", "FAILED", True),
    ("meeting", "CANCELLED", False),
    ("meeting", "RUNNING", False),
    ("meeting", "SUCCEEDED", False),
    ("meeting", None, False),
    ("stepping", "FAILED", True),
    ("stepping", "CANCELLED", True),
    ("stepping", "RUNNING", False),
    ("stepping", "SUCCEEDED", False),
    ("connecting", None, True),
    ("connecting", "PENDING", False),
])  # fmt: skip
def test_a_job_whose_launchers_node_restarts_has_failed(moment: str, state: str | None, is_right: bool) -> None:
    gone = told(code=255, state=state, recorded=None)
    assert (verdict(gone, "all", slot=1, kind="reboot", moment=moment) == []) is is_right


def test_a_session_that_finds_the_node_when_it_is_back_has_a_job_like_any_other() -> None:
    whole = told(ranks(3, done=3), before=[])
    assert verdict(whole, "all", slot=1, kind="reboot", moment="connecting") == []
    half = told(ranks(3, done=2), before=[])
    assert verdict(half, "all", slot=1, kind="reboot", moment="connecting") != []


def test_of_a_launcher_that_is_gone_with_its_node_nobody_can_tell() -> None:
    assert verdict(told(code=None, ended_s=None, state=None), "end", slot=1, kind="kill") == []
