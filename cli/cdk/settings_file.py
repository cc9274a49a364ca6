"""Change one setting in the text of cdk.json, leaving every other character unchanged."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cli.errors import UsageError

CONTEXT: Final = "context"
CLUSTER: Final = "cluster"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """Position of one member of a JSON object in a text."""

    key: str
    key_start: int
    start: int
    """Start of the value."""
    end: int
    value: Any


def write_setting(path: Path, name: str, value: Any) -> None:
    """Set a cluster's setting in a cdk.json atomically. Raises UsageError."""
    try:
        text = path.read_text()
        changed = with_setting(text, name, value)
        if changed != text:
            _replace(path, changed)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot set {name} in {path}: {error}") from error


def with_setting(text: str, name: str, value: Any) -> str:
    """Return the text of a cdk.json with a setting changed or added. Raises ValueError."""
    root = _skip(text, 0)
    context = _find(text, root, CONTEXT)
    if context is None:
        return _insert(text, root, CONTEXT, {CLUSTER: {name: value}})
    single, cluster = _find(text, context.start, name), _find(text, context.start, CLUSTER)
    # A separate key of the context overrides the same one in the cluster's object.
    current = single or (cluster and _find(text, cluster.start, name))
    if current is not None:
        return text[: current.start] + json.dumps(value) + text[current.end :]
    if cluster is None:
        return _insert(text, context.start, CLUSTER, {name: value})
    return _insert(text, cluster.start, name, value)


def _replace(path: Path, text: str) -> None:
    # Follow links, as an editor would, and keep the file's permissions.
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _skip(text: str, index: int) -> int:
    match = _SPACE.match(text, index)
    return match.end() if match else index


def _find(text: str, start: int, key: str) -> _Part | None:
    """Return the member that counts: like JSON readers, the last of that name."""
    return next((part for part in reversed([*_members(text, start)]) if part.key == key), None)


def _members(text: str, start: int) -> Iterator[_Part]:
    """Yield the members of the object that begins at `start`."""
    if not text.startswith("{", start):
        raise ValueError(f"character {start} must begin a JSON object")
    index = _skip(text, start + 1)
    while not text.startswith("}", index):
        key, after = _DECODER.raw_decode(text, index)
        value_start = _skip(text, _skip(text, after) + 1)
        value, end = _DECODER.raw_decode(text, value_start)
        yield _Part(key=key, key_start=index, start=value_start, end=end, value=value)
        index = _skip(text, end)
        if text.startswith(",", index):
            index = _skip(text, index + 1)


def _insert(text: str, start: int, key: str, value: Any) -> str:
    """Add a member at the end of the object that begins at `start`, indented like the others."""
    members = [*_members(text, start)]
    entry = f"{json.dumps(key)}: {json.dumps(value)}"
    if not members:
        end = _skip(text, start + 1)
        return f"{text[: start + 1]}{entry}{text[end:]}"
    last = members[-1]
    before = text[: last.key_start]
    space = before[len(before.rstrip(" \t\n\r")) :]
    return f"{text[: last.end]},{space or ' '}{entry}{text[last.end :]}"
