"""Encode the launcher's requests to a runner, between the greeting and the spec, and the runner's answers.

A request is a line: ``request`` and a JSON object. The runner answers each with frames (FrameType.ANSWER of
launcher.transport.protocol). The bytes of files follow their request in pieces: a line, ``data`` and the number of
bytes, then the bytes.
"""

import json
import zlib
from collections.abc import Iterable
from typing import Any, TypeAlias

from launcher.transport.protocol import DATA, MAX_PAYLOAD, REQUEST

Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]
Ranges: TypeAlias = list[list[int]]
"""Pairs of the first number of a range and the first one after it."""
MAX_UNPACKED = 64 * MAX_PAYLOAD


def request_line(operation: str, **values: Any) -> bytes:
    """Encode a request for an operation of launcher.runner.requests.server."""
    return REQUEST + json.dumps({"operation": operation, **values}).encode("ascii") + b"\n"


def data_piece(data: bytes) -> bytes:
    """Encode a piece of the stream of files."""
    return DATA + str(len(data)).encode("ascii") + b"\n" + data


def pack_answer(answer: Answer) -> bytes:
    """Encode a frame's payload."""
    return zlib.compress(json.dumps(answer).encode("ascii"), level=1)


def unpack_answer(payload: bytes) -> Answer:
    """Decode what `pack_answer` encoded."""
    answer: Answer = json.loads(zlib.decompressobj().decompress(payload, MAX_UNPACKED))
    return answer


def to_ranges(numbers: Iterable[int]) -> Ranges:
    """Encode numbers as ranges."""
    runs: Ranges = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number:
            runs[-1][1] = number + 1
        else:
            runs.append([number, number + 1])
    return runs


def from_ranges(runs: Ranges) -> set[int]:
    """Decode the numbers in the ranges."""
    return {number for start, stop in runs for number in range(start, stop)}
