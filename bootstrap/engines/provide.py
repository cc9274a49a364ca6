"""Provides a node with the environment of its cluster's ``engines``.

The bucket is asked first. Where it has none yet, the master builds it and puts it there, and the workers
wait for that. Whatever comes of it is written down for the agent, which tells the stack.
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

from bootstrap.contract import ENGINES, ENGINES_DIR, ENGINES_LIST, MPIRUN_COMMAND
from bootstrap.engines.archive import Archive
from bootstrap.engines.errors import EnginesError
from bootstrap.engines.recipe import HOROVOD, Recipe
from bootstrap.engines.state import READY, State, write_state
from bootstrap.files import point_link
from bootstrap.node import place

log = logging.getLogger(__name__)

POLL_S: Final = 5.0
RANDOM: Final = random.SystemRandom()
"""Spreads the polls of workers that started at the same moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What providing touches: a test has another of each."""

    root: Path
    archive: Callable[[Recipe], Archive]
    """May fail, as AWS does, until the node has credentials."""
    build: Callable[[Recipe, Path], None]
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def provide(recipe: Recipe, *, is_master: bool, wait_s: float, here: Surroundings) -> None:
    """Make the environment the node's; EnginesError when there is none in time."""
    directory = place(here.root, recipe.directory)
    # The master looks into the bucket all the same: it may have been stopped before it had put it there.
    if is_master or not is_complete(directory):
        _get(recipe, directory, is_master=is_master, deadline=here.monotonic() + wait_s, here=here)
    point_link(place(here.root, ENGINES), Path(recipe.directory))
    if HOROVOD in recipe.engines:
        _offer(place(here.root, MPIRUN_COMMAND), Path(ENGINES, "bin/mpirun"))
    write_state(here.root, State(doing=READY))
    log.info("engines: %s is ready", recipe.key)


def is_complete(directory: Path) -> bool:
    """Whether an environment is whole: the list of its engines is what a build writes last."""
    return (directory / Path(ENGINES_LIST).name).is_file()


def _get(recipe: Recipe, directory: Path, *, is_master: bool, deadline: float, here: Surroundings) -> None:
    write_state(here.root, State(doing="fetching"))
    while True:
        missing = "not in the bucket"
        try:
            archive = here.archive(recipe)
            if archive.is_stored():
                if not is_complete(directory):
                    archive.fetch(directory)
                return
            if is_master:
                _make(recipe, directory, archive, here)
                return
            write_state(here.root, State(doing="waiting-for-master"))
        except (BotoCoreError, ClientError, Boto3Error) as error:
            missing = "bucket unreachable"
            log.warning("%s: %s", recipe.object_key, error)
        if here.monotonic() >= deadline:
            raise EnginesError(missing, f"{recipe.object_key} is not to be had from the bucket in time")
        here.sleep(POLL_S * RANDOM.uniform(0.75, 1.25))


def _make(recipe: Recipe, directory: Path, archive: Archive, here: Surroundings) -> None:
    if not is_complete(directory):
        write_state(here.root, State(doing="building"))
        started = here.monotonic()
        here.build(recipe, directory)
        log.info("built %s in %.0f s", recipe.key, here.monotonic() - started)
    write_state(here.root, State(doing="storing"))
    archive.store(directory)


def _offer(command: Path, target: Path) -> None:
    """Put a command on everybody's PATH, unless the image has one of its own there."""
    ours = command.is_symlink() and str(command.readlink()).startswith(f"{ENGINES_DIR}/")
    if ours or not (command.exists() or command.is_symlink()):
        point_link(command, target)
