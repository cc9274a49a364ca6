"""Test how the workers' output is parsed."""

import pytest

from benchmarks.harness import pair
from benchmarks.harness.pair import Contestant, Line, epoch_speed
from benchmarks.harness.work import Work


def test_epoch_speed_includes_the_work_between_epochs() -> None:
    work = Work(batch_size=8, steps=4, epochs=3, window=2)
    # Windows of a second, and two seconds for validation and checkpoint after each epoch.
    times = [1, 2, 5, 6, 9, 10]
    lines = [Line(seconds=second, text=f"Epoch[0] Batch [2] Speed: 16.00 samples/sec {second}") for second in times]
    lines.insert(2, Line(seconds=3, text="Epoch[0] Train-accuracy=0.5 Speed=99 samples/sec (all workers)"))
    assert epoch_speed(lines, work) == pytest.approx(2 * 32 / 8)


def test_early_end_of_a_worker_is_reported_with_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(batch_size=8, steps=4, epochs=3, window=2)
    complete = [Line(seconds=second, text="Speed: 16.00 samples/sec") for second in range(6)]
    truncated = [*complete[:3], Line(seconds=3, text="trainer: out of memory")]
    monkeypatch.setattr(pair, "run_on_both", lambda contestant, directory: [complete, truncated])
    with pytest.raises(SystemExit, match=r"ours did not train to the end: .*trainer: out of memory"):
        Contestant(name="ours", command=[], work=work).run()
