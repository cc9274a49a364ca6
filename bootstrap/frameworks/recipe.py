"""What an environment is made of, and the name that follows from it. Pure, but for reading its own lists."""

import hashlib
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bootstrap.contract import ENGINES_DIR, ENGINES_PREFIX
from bootstrap.errors import FrameworkError

MXNET: Final = "mxnet"
HOROVOD: Final = "horovod"
CONTENTS: Final = {MXNET: (MXNET,), HOROVOD: (MXNET, HOROVOD)}
"""The engines of each environment. Horovod's has Open MPI too."""
MACHINE: Final = "x86_64"
PYTHONS: Final = ((3, 10), (3, 11), (3, 12))
"""The agent needs the oldest; the newest has the last NumPy that MXNet runs with."""
SYSTEM_PYTHON: Final = "/usr/bin/python3"
OUTWARD_LINKS: Final = {"bin/python3": SYSTEM_PYTHON}
"""What of an environment lies outside of it. No archive has such a link: each node makes its own."""
MENDS: Final = Path(__file__).with_name("mends.py")
MENDS_MODULE: Final = "deeplearning_mends"
"""Its name in an environment, where each Python imports it at its start."""

HOROVOD_SOURCE: Final = Path(__file__).with_name("horovod-source.txt")
"""PyPI has its source alone, which is compiled against the MXNet and the Open MPI of the environment."""
HOROVOD_OPTIONS: Final = {
    "HOROVOD_WITH_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    # GCC 13 no longer includes it by the way, as Gloo's sources have it.
    "CXXFLAGS": "-include cstdint",
    # Open MPI's libraries are found from where Horovod's own lies, wherever the wheel was built.
    "LDFLAGS": "-Wl,-rpath,$ORIGIN/../../../..",
}
MPIRUN: Final = """\
#!/bin/sh
# Told where it lies, mpirun finds its own programs, and python, on the other nodes too.
bin=$(dirname "$(readlink -f "$0")")
exec "$bin/mpiexec" --prefix "${bin%/bin}" "$@"
"""
"""Stands in the place of the wheel's mpirun, which is one program with its mpiexec."""
BUILD_TOOLS: Final = Path(__file__).with_name("build.txt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """One environment."""

    name: str
    """Of CONTENTS: the last engine that it has."""
    python: tuple[int, int]
    machine: str
    libc: str
    """What is compiled on one Linux may not run on an older one."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """What it has."""
        return CONTENTS[self.name]

    @property
    def requirements(self) -> tuple[Path, ...]:
        """Lists of wheels, each pinned and with its hashes."""
        return tuple(Path(__file__).with_name(f"{framework}.txt") for framework in self.frameworks)

    @property
    def key(self) -> str:
        """Name of the environment: another recipe has another one."""
        digest = hashlib.sha256()
        for path in (*self.requirements, MENDS):
            digest.update(path.read_bytes())
        if HOROVOD in self.frameworks:
            digest.update(repr((sorted(HOROVOD_OPTIONS.items()), MPIRUN)).encode())
            for path in (HOROVOD_SOURCE, BUILD_TOOLS):
                digest.update(path.read_bytes())
        version = ".".join(map(str, self.python))
        return f"{self.name}-py{version}-{self.libc}-{self.machine}-{digest.hexdigest()[:16]}"

    @property
    def directory(self) -> str:
        """Where it is on a node. Its programs know this place by heart: it cannot be moved."""
        return f"{ENGINES_DIR}/{self.key}"

    def object_key(self, cluster_name: str) -> str:
        """Return the bucket's key for a cluster's archive.

        Archives of two builds differ, and each cluster's table has the hash of its own: clusters that share a bucket
        must not replace each other's.
        """
        return f"{ENGINES_PREFIX}{cluster_name}/{self.key}.tar.gz"


def recipe_for_this_machine(name: str) -> Recipe:
    """The recipe for the Python that runs this; EnginesError where there can be none."""
    recipe = Recipe(
        name=name,
        python=sys.version_info[:2],
        machine=platform.machine(),
        libc="".join(platform.libc_ver()),
    )
    if recipe.machine != MACHINE:
        raise FrameworkError(
            f"no MXNet for {recipe.machine}", f"engines need {MACHINE}, got {recipe.machine}", lasting=True
        )
    if recipe.python not in PYTHONS:
        version = ".".join(map(str, recipe.python))
        allowed = ", ".join(".".join(map(str, one)) for one in PYTHONS)
        raise FrameworkError(
            f"no MXNet for Python {version}", f"engines need Python {allowed}, got {version}", lasting=True
        )
    return recipe
