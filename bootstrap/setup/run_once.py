"""Run the user's setup once per content and node type: a marker on the disk records what has succeeded there."""

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bootstrap.atomic_file import write_file
from bootstrap.contract import (
    PYTORCH_PYTHON,
    SETUP_DONE,
    SETUP_FAILED,
    SETUP_MARKER_FILE,
    SETUP_REQUIREMENTS,
    SETUP_RUNNING,
    SETUP_SCRIPT,
    NodeType,
)
from bootstrap.errors import SetupError
from bootstrap.files.paths import under_root
from bootstrap.setup.archive import SetupSource, fetch, unpack
from bootstrap.setup.progress import SetupProgress, write_progress

log = logging.getLogger(__name__)

SETUP_DIR: Final = "/var/lib/deeplearning/setup"
"""Parent of the unpacked archives, each named by its hash."""
PIP_INSTALL: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--requirement")
RETRY_S: Final = 30.0
"""Seconds before a failed program runs again: package indexes and apt's lock may be busy briefly."""


class Run(Protocol):
    """Runs a program of the setup, like `bootstrap.setup.process.run_program`. Raises SetupError."""

    def __call__(self, command: list[str], *, cwd: Path, deadline: float) -> None:
        """Run the program to its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupDependencies:
    """Parts of the machine and of AWS that a setup uses; tests replace each."""

    root: Path
    read: Callable[[str, str], bytes]
    """Returns an object of a bucket. Raises errors of AWS until the node has credentials."""
    run: Run
    flush: Callable[[], None]
    """Sends the output to the log group, because a failed node may be terminated as soon as its failure is known."""
    python: str = PYTORCH_PYTHON
    """Python whose environment gets the requirements."""
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def done_marker(sha256: str, node_type: NodeType) -> str:
    """Return the content of the marker. It includes the node type, because a setup may do other things on a master."""
    return f"{sha256} {node_type}\n"


def run_setup_once(source: SetupSource, *, node_type: NodeType, dependencies: SetupDependencies) -> None:
    """Run the setup unless it has already succeeded on this disk; write its outcome for the agent."""
    marker = under_root(dependencies.root, SETUP_MARKER_FILE)
    done = done_marker(source.sha256, node_type)
    # Markers of older releases lack the node type. Such a marker was written on this very disk: prepare_image only
    # makes images whose marker has the type.
    if marker.is_file() and marker.read_text().strip() in (done.strip(), source.sha256):
        log.info("setup %s was done before", source.sha256)
        write_progress(dependencies.root, SetupProgress(state=SETUP_DONE, sha256=source.sha256))
        return
    write_progress(dependencies.root, SetupProgress(state=SETUP_RUNNING, sha256=source.sha256))
    started = dependencies.monotonic()
    try:
        _run_all(source, deadline=started + source.timeout_s, dependencies=dependencies)
        write_file(marker, done)
    except (SetupError, OSError) as error:
        short = error.short if isinstance(error, SetupError) else error.strerror or type(error).__name__
        progress = SetupProgress(state=SETUP_FAILED, sha256=source.sha256, failure=short)
        log.warning("setup %s has failed: %s", source.sha256, error)
    else:
        progress = SetupProgress(state=SETUP_DONE, sha256=source.sha256)
        log.info("setup %s took %.0f s", source.sha256, dependencies.monotonic() - started)
    dependencies.flush()
    write_progress(dependencies.root, progress)


def _run_all(source: SetupSource, *, deadline: float, dependencies: SetupDependencies) -> None:
    directory = under_root(dependencies.root, f"{SETUP_DIR}/{source.sha256}")
    # Restart an interrupted setup with fresh files.
    shutil.rmtree(directory, ignore_errors=True)
    content = fetch(
        source, read=dependencies.read, deadline=deadline, monotonic=dependencies.monotonic, sleep=dependencies.sleep
    )
    unpack(content, directory)
    if (directory / SETUP_SCRIPT).is_file():
        _run([str(directory / SETUP_SCRIPT)], cwd=directory, deadline=deadline, dependencies=dependencies)
    if (directory / SETUP_REQUIREMENTS).is_file():
        if not Path(dependencies.python).is_file():
            raise SetupError(
                f"no {dependencies.python}",
                f"requirements need {dependencies.python}, which this image lacks: install them in the script of setup",
            )
        command = [dependencies.python, *PIP_INSTALL, SETUP_REQUIREMENTS]
        _run(command, cwd=directory, deadline=deadline, dependencies=dependencies)


def _run(command: list[str], *, cwd: Path, deadline: float, dependencies: SetupDependencies) -> None:
    """Run a program, and once more if it fails with an exit code before the deadline."""
    try:
        dependencies.run(command, cwd=cwd, deadline=deadline)
    except SetupError as error:
        if not error.transient or dependencies.monotonic() + RETRY_S >= deadline:
            raise
        log.warning("%s; it runs a second time in %.0f s", error, RETRY_S)
        dependencies.sleep(RETRY_S)
        dependencies.run(command, cwd=cwd, deadline=deadline)
