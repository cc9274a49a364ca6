"""A job's record for tests."""

from launcher.jobs.record import Record, State

RECORD = Record(
    id="20261122-000000-aaaaaa",
    state=State.RUNNING,
    command=("python", "x"),
    hosts=("one", "two"),
    engine="torch",
    cwd="/",
    user="u",
    pid=1,
    start="2026-11-22T00:00:00Z",
)
