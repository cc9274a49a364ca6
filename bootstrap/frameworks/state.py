"""How far a node's environment is: written by the service, read by the agent."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bootstrap.atomic_file import write_file
from bootstrap.contract import ENGINES_STATE
from bootstrap.errors import FrameworkError
from bootstrap.files.node_files import place


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The service's word, until the next boot."""

    doing: str
    """One word."""
    why: str | None = None
    """Which try it is, and what the last one failed with."""
    failure: str | None = None
    """In a few words, for the signal."""
    detail: str | None = None


READY = "ready"
STARTING = State(doing="starting")


def write_state(root: Path, state: State) -> None:
    """Say how far it is."""
    write_file(place(root, ENGINES_STATE), json.dumps(asdict(state)) + "\n")


def read_state(root: Path) -> State:
    """What the service last said."""
    try:
        return State(**json.loads(place(root, ENGINES_STATE).read_text()))
    except FileNotFoundError:
        return STARTING


class Frameworks:
    """The agent's view of its node's environment."""

    def __init__(self, root: Path, *, name: str | None) -> None:
        self._root = root
        self._name = name
        self.waiting: str | None = None
        """What is waited for, in a few words."""

    def ready(self) -> bool:
        """Whether the environment is there, or none is wanted; EnginesError when there will be none."""
        if self._name is None:
            return True
        state = read_state(self._root)
        if state.failure is not None:
            raise FrameworkError(state.failure, state.detail or state.failure)
        why = f" ({state.why})" if state.why else ""
        self.waiting = None if state.doing == READY else f"engines: {state.doing}{why}"
        return self.waiting is None
