"""Test how the output of a process is cut into lines."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.output.output_stream import OutputStream
from launcher.output.prefixes import MAX_LINE, TAIL_LINES, ProcessOutput
from launcher.transport.protocol import FrameType

Read = Callable[[], bytes]


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[tuple[ProcessOutput, Read]]:
    path = tmp_path / "out"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    yield (
        ProcessOutput("n [0] ", {FrameType.STDOUT: OutputStream(fd), FrameType.STDERR: OutputStream(fd)}),
        path.read_bytes,
    )
    os.close(fd)


def test_lines_are_complete_and_streams_do_not_mix(sink: tuple[ProcessOutput, Read]) -> None:
    output, read = sink
    asyncio.run(output.write(FrameType.STDOUT, b"half"))
    asyncio.run(output.write(FrameType.STDERR, b"other\n"))
    assert read() == b"n [0] other\n"
    asyncio.run(output.write(FrameType.STDOUT, b" line\n\nnext"))
    assert read() == b"n [0] other\nn [0] half line\nn [0] \n"
    asyncio.run(output.finish())
    assert read().endswith(b"n [0] \nn [0] next\n")


def test_endless_line_is_broken(sink: tuple[ProcessOutput, Read]) -> None:
    output, read = sink
    asyncio.run(output.write(FrameType.STDOUT, b"x" * (MAX_LINE + 1)))
    assert read() == b"n [0] " + b"x" * (MAX_LINE + 1) + b"\n"


def test_tail_of_the_output_has_the_last_lines(sink: tuple[ProcessOutput, Read]) -> None:
    output, _ = sink
    asyncio.run(output.write(FrameType.STDOUT, b"".join(b"%d\n" % number for number in range(100))))
    assert list(output.tail) == [b"%d" % number for number in range(100 - TAIL_LINES, 100)]
