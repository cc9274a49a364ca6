"""Provide fixtures for the local AWS's own tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.cache import cache_dir
from tests import leak_check
from tests.local.fake_cloud import cloud, unknown

__all__ = ["clean_machine", "cloud", "own_runs", "unknown"]

OF_ITS_OWN = ("run", "run.lock", "last-log", "last-log.lock", "tmp")
"""Entries of the cache that a test does not share."""


@pytest.fixture
def own_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test a cache without other runs; what is slow to build comes from the usual cache."""
    with tempfile.TemporaryDirectory(prefix="c-") as directory:
        own = Path(directory, "deeplearning-cdk")
        own.mkdir()
        for entry in cache_dir().glob("*"):
            if entry.name not in OF_ITS_OWN:
                (own / entry.name).symlink_to(entry)
        monkeypatch.setenv("XDG_CACHE_HOME", directory)
        yield


@pytest.fixture
def clean_machine(own_runs: None) -> Iterator[leak_check.Snapshot]:
    """Check that the test leaves nothing on the machine."""
    assert own_runs is None
    leak_check.prepare()
    with leak_check.marked():
        before = leak_check.take_snapshot()
        yield before
        assert leak_check.settled_difference(before) == []
