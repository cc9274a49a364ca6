"""Install the MXNet environment that the setting ``frameworks`` names.

The node downloads the archive from the bucket and compares it with the hash that the master has written into the table.
If there is none yet, the master builds the environment and uploads it, and the workers wait. The state file contains
the outcome, which the agent reports to the stack.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from bootstrap.atomic_file import point_link
from bootstrap.contract import MXNET_ENVIRONMENT_LINK, MXNET_ENVIRONMENTS_DIR, MXNET_FRAMEWORKS_FILE
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.files.paths import under_root
from bootstrap.mxnet_environment.archive import Archive
from bootstrap.mxnet_environment.archive_hash import HashRecord
from bootstrap.mxnet_environment.progress import READY, EnvironmentProgress, write_progress
from bootstrap.mxnet_environment.recipe import HOROVOD, Recipe

log = logging.getLogger(__name__)

MPIRUN_COMMAND: Final = "/usr/local/bin/mpirun"
"""Symbolic link to mpirun of an environment with Horovod, for login shells."""
POLL_S: Final = 5.0
"""Seconds between checks of the bucket, and half of the first pause after a failure."""
MAX_BACKOFF_S: Final = 80.0
"""Longest pause after a failure, in seconds; each pause is twice the previous one."""
RANDOM: Final = random.SystemRandom()
"""Source of random pauses, which spread the polls of workers that started together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentDependencies:
    """Functions of the machine and of AWS; tests replace each."""

    root: Path
    archive: Callable[[Recipe], Archive]
    """Returns the archive of a recipe. Raises errors of AWS until the node has credentials."""
    record: Callable[[], HashRecord]
    """Returns the table's record with the archive's hash."""
    build: Callable[[Recipe, Path, float], None]
    """Builds the environment in a directory, with a deadline in seconds."""
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def install_environment(
    recipe: Recipe, *, is_master: bool, wait_s: float, dependencies: EnvironmentDependencies
) -> None:
    """Install the environment within ``wait_s`` seconds. Raises MxnetEnvironmentError."""
    directory = under_root(dependencies.root, recipe.directory)
    # The master always checks the bucket, because it may have been stopped before it had uploaded the archive.
    if is_master or not is_complete(directory):
        _fetch_or_build(
            recipe,
            directory,
            is_master=is_master,
            deadline=dependencies.monotonic() + wait_s,
            dependencies=dependencies,
        )
    point_link(under_root(dependencies.root, MXNET_ENVIRONMENT_LINK), Path(recipe.directory))
    if HOROVOD in recipe.frameworks:
        _link_command(under_root(dependencies.root, MPIRUN_COMMAND), Path(MXNET_ENVIRONMENT_LINK, "bin/mpirun"))
    write_progress(dependencies.root, EnvironmentProgress(state=READY))
    log.info("mxnet: %s is ready", recipe.key)


def is_complete(directory: Path) -> bool:
    """Return True if an environment is complete; a build writes the list of its frameworks last."""
    return (directory / Path(MXNET_FRAMEWORKS_FILE).name).is_file()


def _fetch_or_build(
    recipe: Recipe, directory: Path, *, is_master: bool, deadline: float, dependencies: EnvironmentDependencies
) -> None:
    """Download or build the environment; after a failure, retry with growing pauses until the deadline."""
    attempt, retry_reason = 0, None
    while True:
        short_reason, pause = "not in the bucket", POLL_S
        write_progress(dependencies.root, EnvironmentProgress(state="fetching", why=retry_reason))
        try:
            archive, record = dependencies.archive(recipe), dependencies.record()
            if _fetch(recipe, directory, archive, record, is_master=is_master):
                return
            if is_master:
                left = max(1.0, deadline - dependencies.monotonic())
                _build_and_store(
                    recipe,
                    directory,
                    archive,
                    record,
                    dependencies=dependencies,
                    limit_s=left,
                    retry_reason=retry_reason,
                )
                return
            write_progress(dependencies.root, EnvironmentProgress(state="waiting-for-master", why=retry_reason))
        except (BotoCoreError, ClientError, Boto3Error) as error:
            short_reason = "bucket unreachable"
            log.warning("%s: %s", recipe.key, error)
        except MxnetEnvironmentError as error:
            attempt, short_reason = attempt + 1, error.short
            retry_reason = f"try {attempt}: {short_reason}"
            pause = min(POLL_S * 2**attempt, MAX_BACKOFF_S)
            log.warning("%s: %s", retry_reason, error)
            if error.is_permanent or dependencies.monotonic() + pause >= deadline:
                raise MxnetEnvironmentError(short_reason, f"{error} (try {attempt})") from error
            write_progress(dependencies.root, EnvironmentProgress(state="pausing", why=retry_reason))
        if dependencies.monotonic() >= deadline:
            detail = f"{recipe.key} was not in the bucket in time; only a master of the same release stores it"
            raise MxnetEnvironmentError(short_reason, detail)
        dependencies.sleep(pause * RANDOM.uniform(0.75, 1.25))


def _fetch(recipe: Recipe, directory: Path, archive: Archive, record: HashRecord, *, is_master: bool) -> bool:
    """Download the archive whose hash is in the table; return False if there is none.

    A master does not trust the bucket either, but after a wrong hash it can build the environment again.
    """
    try:
        sha256 = record.read(recipe.key)
        if sha256 is None or not archive.is_stored():
            return False
        if not is_complete(directory):
            archive.fetch(directory, sha256=sha256)
    except MxnetEnvironmentError as error:
        if not is_master:
            raise
        log.warning("building again: %s", error)
        return False
    return True


def _build_and_store(
    recipe: Recipe,
    directory: Path,
    archive: Archive,
    record: HashRecord,
    *,
    dependencies: EnvironmentDependencies,
    limit_s: float,
    retry_reason: str | None,
) -> None:
    if not is_complete(directory):
        write_progress(dependencies.root, EnvironmentProgress(state="building", why=retry_reason))
        started = dependencies.monotonic()
        dependencies.build(recipe, directory, limit_s)
        log.info("built %s in %.0f s", recipe.key, dependencies.monotonic() - started)
    write_progress(dependencies.root, EnvironmentProgress(state="storing", why=retry_reason))
    # In this order, a node that finds the hash also finds its archive.
    record.write(recipe.key, archive.store(directory))


def _link_command(command: Path, target: Path) -> None:
    """Link a command into every user's PATH, unless the image has its own there."""
    is_own_link = command.is_symlink() and str(command.readlink()).startswith(f"{MXNET_ENVIRONMENTS_DIR}/")
    if is_own_link or not (command.exists() or command.is_symlink()):
        point_link(command, target)
