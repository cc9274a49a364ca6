"""Log each data plane error when it starts, not in each pass, and publish errors for ``local-aws status``."""

import contextlib
import json
import logging
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from local.errors import LocalError

log = logging.getLogger(__name__)
FILE: Final = "data-plane-errors.json"
RECONCILIATION: Final = "reconciliation"
"""Name of an error that ended a complete pass instead of the update of one instance."""
RETRIED_ERRORS = (ClientError, BotoCoreError, LookupError, LocalError, OSError, subprocess.SubprocessError)
"""Errors to retry in the next pass: a read between two writes of the control plane (for example of a deleted subnet),
or something that this machine refuses. One instance must not stop the others."""


class DataPlaneErrors:
    """Errors of the current pass and of the previous one, by the name of what could not be updated."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / FILE
        self._previous: dict[str, str] = {}
        self._current: dict[str, str] = {}

    @contextlib.contextmanager
    def recorded(self, name: str) -> Iterator[None]:
        """Record and suppress a temporary error; the next pass tries again."""
        try:
            yield
        except RETRIED_ERRORS as error:
            self._current[name] = str(error) if isinstance(error, LocalError) else repr(error)
            if self._previous.get(name) != self._current[name]:
                failure = "the pass failed" if name == RECONCILIATION else f"cannot update {name}"
                log.warning("%s, will retry: %s", failure, self._current[name])

    def end_pass(self) -> None:
        """Publish the errors of this pass, and forget those that did not recur."""
        if self._current != self._previous:
            partial = self._file.with_name(f"{FILE}.partial")
            partial.write_text(json.dumps(self._current))
            partial.rename(self._file)
        self._previous, self._current = self._current, {}


def read_errors(run_dir: Path) -> Mapping[str, str]:
    """Return the errors of the last pass."""
    try:
        errors: dict[str, Any] = json.loads((run_dir / FILE).read_text())
    except FileNotFoundError:
        return {}
    return errors
