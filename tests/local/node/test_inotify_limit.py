"""Test the check for enough inotify instances."""

import ctypes
import os
import re
from collections.abc import Iterator

import pytest

from local.node.inotify_limit import INSTANCES_PER_NODE, LIMIT, inotify_shortage


@pytest.fixture
def limit() -> int:
    return int(LIMIT.read_text())


@pytest.fixture
def nearly_used_up() -> Iterator[None]:
    """Use up all inotify instances except two."""
    libc, taken = ctypes.CDLL(None), list[int]()
    while (handle := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
        taken.append(handle)
    for _ in range(2):
        os.close(taken.pop())
    yield
    for handle in taken:
        os.close(handle)


def test_inotify_limit_allows_one_node() -> None:
    assert inotify_shortage(1) is None


def test_too_many_nodes_for_the_inotify_limit_are_reported(limit: int) -> None:
    nodes = limit // INSTANCES_PER_NODE + 1
    line = inotify_shortage(nodes)
    assert line is not None
    enough = re.search(r"sysctl fs\.inotify\.max_user_instances=(\d+)$", line)
    assert enough is not None
    assert int(enough[1]) >= nodes * INSTANCES_PER_NODE
    assert "\n" not in line


@pytest.mark.usefixtures("nearly_used_up")
def test_exhausted_inotify_instances_are_reported() -> None:
    line = inotify_shortage(1)
    assert line is not None
    assert "2 of " in line
