"""Provide parts of Python's library without their slow imports, because a runner starts with every job.

`signal`, `json` and `ctypes` wrap these C modules in Python. In Python 3.11 importing the wrappers takes as long as
starting Python, mostly for enumerations, regular expressions and C types, which no runner needs.
"""

import _ctypes
import _json
import os

TYPE_CHECKING = False
"""False; importing typing for it would cost each start about 9 ms (see docs/decisions/013)."""
if TYPE_CHECKING:
    import signal as signal
    from typing import Any
else:
    import _signal as signal  # noqa: F401  (for importers of this module)

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_RTLD_NOW = 2
_PRCTL = _ctypes.dlsym(_ctypes.dlopen(None, _RTLD_NOW), "prctl")  # type: ignore[arg-type]  # None is this process


class _Strict:
    """Attributes that the C scanner reads from a json.JSONDecoder, with that class's defaults."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float

    def __getattr__(self, name: str) -> None:
        """Return None for hooks that later versions of Python add."""


_scan = _json.make_scanner(_Strict())  # type: ignore[arg-type]  # it has all attributes that the scanner reads


def parse_json(text: str) -> "Any":
    """Return the value at the beginning of `text`. Raises ValueError or StopIteration if it is not JSON."""
    value, _ = _scan(text, 0)
    return value


def json_string(text: str) -> str:
    """Return `text` as JSON."""
    return _json.encode_basestring_ascii(text)


def read_file(path: str) -> str:
    """Read a small file of the kernel; open() takes as long as several such reads."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while more := os.read(file, 1 << 16):
            data += more
        return data.decode("ascii")
    finally:
        os.close(file)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process that has a single value."""
    _ctypes.call_function(_PRCTL, (option, value, 0, 0, 0))
