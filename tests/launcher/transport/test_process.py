"""Test programs that the launcher cannot start."""

import gc
import os
from pathlib import Path

import pytest

from launcher.transport.process import PipedProcess


def open_descriptors() -> set[str]:
    gc.collect()
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def assert_none_opened_since(before: set[str]) -> None:
    # A thread of an earlier test may close descriptors meanwhile.
    assert not open_descriptors() - before


def test_missing_program_leaves_no_descriptor_open() -> None:
    before = open_descriptors()
    with pytest.raises(FileNotFoundError):
        PipedProcess.start(["/nowhere/ssh"])
    assert_none_opened_since(before)


def test_lack_of_descriptors_leaves_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before, pipe, left = open_descriptors(), os.pipe, [1, 1]

    def scarce() -> tuple[int, int]:
        if not left:
            raise OSError(24, "Too many open files")
        left.pop()
        return pipe()

    monkeypatch.setattr(os, "pipe", scarce)
    with pytest.raises(OSError, match="Too many open files"):
        PipedProcess.start(["true"])
    assert_none_opened_since(before)
