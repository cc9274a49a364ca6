"""Parts of Python's library without all that they import: a runner starts on every node of every job.

`signal`, `json` and `ctypes` are Python around these parts in C. In Python 3.11 they take as long to import as Python
takes to start, and most of that is for what no runner needs: enumerations, regular expressions, types of C.
"""

import _ctypes
import _json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal
    from typing import Any
else:
    import _signal as signal  # noqa: F401  (for the others)

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_RTLD_NOW = 2
_PRCTL = _ctypes.dlsym(_ctypes.dlopen(None, _RTLD_NOW), "prctl")  # type: ignore[arg-type]  # None is this process


class _Strict:
    """What a scanner asks of a json.JSONDecoder, all of it as in one that was made without arguments."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float

    def __getattr__(self, name: str) -> None:
        """No further hooks, of which later versions of Python have some."""


_scan = _json.make_scanner(_Strict())  # type: ignore[arg-type]  # it has all that a JSONDecoder has to have


def parse_json(text: str) -> "Any":
    """The value that `text` begins with. Raises ValueError or StopIteration when it is no JSON."""
    value, _ = _scan(text, 0)
    return value


def quoted(text: str) -> str:
    """`text` as JSON."""
    return _json.encode_basestring_ascii(text)


def contents(path: str) -> str:
    """What one of the kernel's small files says; open() takes as long as several of them."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read = b""
        while more := os.read(file, 1 << 16):
            read += more
        return read.decode("ascii")
    finally:
        os.close(file)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, one of those that take a single value."""
    _ctypes.call_function(_PRCTL, (option, value, 0, 0, 0))
