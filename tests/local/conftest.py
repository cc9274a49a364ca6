"""Fixtures of the local AWS's own tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.run.cache import cache_dir
from tests import machine
from tests.local.plane import unknown, world

__all__ = ["clean_machine", "own_runs", "unknown", "world"]

OF_ITS_OWN = ("run", "run.lock", "last-log", "last-log.lock", "tmp")
"""What of the cache a test does not share."""


@pytest.fixture
def own_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache with no runs but the test's; what is slow to make is taken from the usual one."""
    with tempfile.TemporaryDirectory(prefix="c-") as directory:
        own = Path(directory, "deeplearning-cdk")
        own.mkdir()
        for entry in cache_dir().glob("*"):
            if entry.name not in OF_ITS_OWN:
                (own / entry.name).symlink_to(entry)
        monkeypatch.setenv("XDG_CACHE_HOME", directory)
        yield


@pytest.fixture
def clean_machine(own_runs: None) -> Iterator[machine.Look]:
    """A test that leaves nothing on the machine."""
    assert own_runs is None
    machine.prepare()
    with machine.marked():
        before = machine.look()
        yield before
        assert machine.settled_difference(before) == []
