"""Store the progress of a node's MXNet environment in a file: the service writes it, the agent reads it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bootstrap.atomic_file import write_file
from bootstrap.contract import MXNET_ENVIRONMENT_STATE
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.files.paths import under_root


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentState:
    """Progress of the service; a reboot deletes the file."""

    doing: str
    """Current step, one word."""
    why: str | None = None
    """Number and failure of the last try; None on the first."""
    failure: str | None = None
    """The final failure, short enough for a failure signal; None unless the service has failed."""
    detail: str | None = None
    """The failure's full message."""


READY = "ready"
STARTING = EnvironmentState(doing="starting")


def write_state(root: Path, state: EnvironmentState) -> None:
    """Write the state file."""
    write_file(under_root(root, MXNET_ENVIRONMENT_STATE), json.dumps(asdict(state)) + "\n")


def read_state(root: Path) -> EnvironmentState:
    """Return the service's last state, or STARTING."""
    try:
        return EnvironmentState(**json.loads(under_root(root, MXNET_ENVIRONMENT_STATE).read_text()))
    except FileNotFoundError:
        return STARTING


class EnvironmentStatus:
    """Tells the agent whether its node's MXNet environment is ready."""

    def __init__(self, root: Path, *, name: str | None) -> None:
        self._root = root
        self._name = name
        self.waiting: str | None = None
        """Step that the agent waits for, short enough for a failure signal; None if it waits for none."""

    def check(self) -> bool:
        """Read the progress into ``waiting``; return True if the environment is ready or not wanted.

        Raises MxnetEnvironmentError if the service has failed.
        """
        if self._name is None:
            return True
        state = read_state(self._root)
        if state.failure is not None:
            raise MxnetEnvironmentError(state.failure, state.detail or state.failure)
        why = f" ({state.why})" if state.why else ""
        self.waiting = None if state.doing == READY else f"engines: {state.doing}{why}"
        return self.waiting is None
