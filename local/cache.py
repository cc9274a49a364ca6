"""Cache what is slow to build, outside the checkout: keyed by recipe, guarded by a lock."""

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

log = logging.getLogger(__name__)
LOCK_TIMEOUT_S = 1800.0
UNUSED_S = 7 * 24 * 3600.0


def cache_dir() -> Path:
    """Return the project's cache: $XDG_CACHE_HOME/deeplearning-cdk, by default under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deeplearning-cdk"


def recipe_hash(paths: Iterable[Path], *, extra: str = "") -> str:
    """Hash the names and contents of a recipe's files, so that equal recipes get equal keys."""
    digest = hashlib.sha256(extra.encode())
    for top in paths:
        files = sorted(p for p in top.rglob("*") if p.is_file()) if top.is_dir() else [top]
        for file in files:
            digest.update(f"{file.relative_to(top.parent)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def locked(name: str, *, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Acquire a named lock of the cache. Raises TimeoutError if another process keeps it too long."""
    path = cache_dir() / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"waited {timeout_s:.0f} s for another process to make {name}") from None
                time.sleep(0.2)
        yield


def cached_tree(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the cache's directory NAME-KEY, building it under a lock if it does not exist yet.

    The tree appears only when complete. Trees of the same name with other keys may serve another checkout, even running
    nodes, so they are removed only after a week without use.
    """
    tree = cache_dir() / f"{name}-{key}"
    with locked(name):
        if not tree.exists():
            log.info("building %s (once; kept in %s)", name, tree.parent)
            started = time.monotonic()
            partial = tree.with_name(f"{tree.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            build(partial)
            for old in tree.parent.glob(f"{name}-*"):
                if old != partial and time.time() - old.stat().st_mtime > UNUSED_S:
                    shutil.rmtree(old)
            partial.rename(tree)
            log.info("built %s in %.0f s", name, time.monotonic() - started)
        os.utime(tree)
    return tree
