from collections import Counter

import pytest

from local.faults.job_rounds import KINDS, MOMENTS, Round, Strike, Told, draw, judge

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


def told(*parts: list[str], code: int | None = 0, at: float = 30.0, ended_s: float | None = 40.0) -> Told:
    return Told(lines=[(at, line) for part in parts for line in part], ended_s=ended_s, code=code)


def verdict(said: Told, wish: str, *, slot: int = 2, kind: str = "freeze") -> list[str]:
    one = Round(moment="stepping", fraction=0.5, wish=wish)  # type: ignore[arg-type]
    strike = Strike(kind=kind, slot=slot, rounds=(one,))  # type: ignore[arg-type]
    return judge(said, one, strike=strike, whole_s=35.0)


@pytest.mark.parametrize(("said", "wish"), [
    (told(ranks(3, done=0), code=1), "end"),
    (told(ranks(3, done=0), code=9), "end"),
    (told(ranks(3, done=3)), "end"),
    (told(ranks(3, done=0), [WAITS, AGAIN], ranks(2, done=2)), "fewer"),
    (told(ranks(3, done=0), [WAITS, AGAIN], ranks(3, done=3), at=90.0), "all"),
    (told(ranks(2, done=2)), "all"),
])  # fmt: skip
def test_a_job_that_does_as_it_was_asked_to_is_right(said: Told, wish: str) -> None:
    assert verdict(said, wish) == []


@pytest.mark.parametrize(("said", "wish", "wrong"), [
    (told(ranks(3, done=0), code=None, ended_s=None), "end", "it never ended"),
    (told(ranks(3, done=2)), "end", "it ended with 0, and 2 of 3 ranks were done"),
    (told(), "end", "it ended with 0, and 0 of 0 ranks were done"),
    (told(ranks(3, done=0), code=137), "end", "it ended with 137, neither 1 nor 9"),
    (told(ranks(3, done=0), code=1, ended_s=61.0), "end", "it ended 61 s after the fault"),
    (told(ranks(3, done=0), code=1), "fewer", "it ended with 1, and should have started again"),
    (told(ranks(3, done=3), [WAITS, AGAIN], ranks(1, done=1)), "fewer", "it ended on 1 nodes, 2 were asked for"),
    (told(ranks(3, done=0), [WAITS, AGAIN], ranks(2, done=2)), "all", "it ended on 2 nodes, 3 were asked for"),
    (told([AGAIN], ranks(2, done=2), at=61.0), "fewer", "it started again 61 s after the fault"),
    (told([AGAIN], ranks(3, done=3), at=96.0), "all", "it started again 96 s after the fault"),
])  # fmt: skip
def test_whatever_else_a_job_does_is_wrong(said: Told, wish: str, wrong: str) -> None:
    assert wrong in verdict(said, wish)


def test_of_a_job_whose_launcher_was_struck_only_what_it_can_know_is_asked() -> None:
    assert verdict(told(code=None, ended_s=None), "end", slot=1, kind="kill") == []
    assert verdict(told(code=255), "fewer", slot=1, kind="partition") == []
    alone = told(["launch: w2: lost: silent for 20 s; not restarted on 1 of at least 2 nodes; w2: no answer"], code=1)
    assert verdict(alone, "fewer", slot=1, kind="partition") == []
    assert verdict(alone, "fewer", slot=2, kind="partition") != []
    assert verdict(told(ranks(3, done=0), code=1), "fewer", slot=1, kind="freeze") != []
    assert verdict(told(code=None, ended_s=None), "end", slot=1, kind="freeze") == ["it never ended"]
