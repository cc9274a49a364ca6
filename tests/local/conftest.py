"""Fixtures of the local AWS's own tests."""

from collections.abc import Iterator

import pytest

from tests import machine


@pytest.fixture
def clean_machine() -> Iterator[machine.Look]:
    """A test that leaves nothing on the machine."""
    machine.prepare()
    with machine.marked():
        before = machine.look()
        yield before
        assert machine.settled_difference(before) == []
