"""Define the contents of an MXNet environment, and derive its name from them.

Reads only the requirements files and the patches in this directory.
"""

import hashlib
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bootstrap.contract import MXNET_ARCHIVES_PREFIX, MXNET_ENVIRONMENTS_DIR
from bootstrap.errors import MxnetEnvironmentError

MXNET: Final = "mxnet"
HOROVOD: Final = "horovod"
CONTENTS: Final = {MXNET: (MXNET,), HOROVOD: (MXNET, HOROVOD)}
"""Frameworks of each environment; Horovod's also has Open MPI."""
MACHINE: Final = "x86_64"
PYTHONS: Final = ((3, 10), (3, 11), (3, 12))
"""Python versions: the agent needs 3.10, and MXNet's last NumPy has no wheels after 3.12."""
SYSTEM_PYTHON: Final = "/usr/bin/python3"
OUTWARD_LINKS: Final = {"bin/python3": SYSTEM_PYTHON}
"""Links from an environment to files outside of it. Archives contain none: each node creates its own."""
MXNET_PATCHES: Final = Path(__file__).with_name("mxnet_patches.py")
PATCHES_MODULE: Final = "deeplearning_patches"
"""Name of the patches in an environment, where every Python imports them at startup."""

HOROVOD_SOURCE: Final = Path(__file__).with_name("horovod-source.txt")
"""PyPI has only Horovod's source, which is compiled against the environment's MXNet and Open MPI."""
HOROVOD_OPTIONS: Final = {
    "HOROVOD_WITH_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    # Gloo's sources rely on transitive includes that GCC 13's headers no longer have.
    "CXXFLAGS": "-include cstdint",
    # Find Open MPI's libraries relative to Horovod's own, wherever the wheel was built.
    "LDFLAGS": "-Wl,-rpath,$ORIGIN/../../../..",
}
MPIRUN: Final = """\
#!/bin/sh
# With its own prefix, mpirun finds its programs, and python, on the other nodes too.
bin=$(dirname "$(readlink -f "$0")")
exec "$bin/mpiexec" --prefix "${bin%/bin}" "$@"
"""
"""Replacement for the wheel's mpirun, which is the same program as its mpiexec."""
BUILD_TOOLS: Final = Path(__file__).with_name("build.txt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The ingredients of one environment."""

    name: str
    """A key of CONTENTS."""
    python: tuple[int, int]
    machine: str
    libc: str
    """C library and version; programs compiled on one Linux may not run on an older one."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Return the environment's frameworks."""
        return CONTENTS[self.name]

    @property
    def requirements(self) -> tuple[Path, ...]:
        """Return the requirements files, which list pinned wheels with their hashes."""
        return tuple(Path(__file__).with_name(f"{framework}.txt") for framework in self.frameworks)

    @property
    def key(self) -> str:
        """Return the environment's name, a hash of the recipe."""
        digest = hashlib.sha256()
        for path in (*self.requirements, MXNET_PATCHES):
            digest.update(path.read_bytes())
        if HOROVOD in self.frameworks:
            digest.update(repr((sorted(HOROVOD_OPTIONS.items()), MPIRUN)).encode())
            for path in (HOROVOD_SOURCE, BUILD_TOOLS):
                digest.update(path.read_bytes())
        version = ".".join(map(str, self.python))
        return f"{self.name}-py{version}-{self.libc}-{self.machine}-{digest.hexdigest()[:16]}"

    @property
    def directory(self) -> str:
        """Return the environment's directory on a node. Its programs contain this path, so it cannot be moved."""
        return f"{MXNET_ENVIRONMENTS_DIR}/{self.key}"

    def object_key(self, cluster_name: str) -> str:
        """Return the bucket's key for a cluster's archive.

        Archives of two builds differ, and each cluster's table has the hash of its own archive, so clusters that share
        a bucket must not replace each other's archives.
        """
        return f"{MXNET_ARCHIVES_PREFIX}{cluster_name}/{self.key}.tar.gz"


def recipe_for_this_machine(name: str) -> Recipe:
    """Return the recipe for the running Python.

    Raises MxnetEnvironmentError if the machine cannot have the environment.
    """
    recipe = Recipe(
        name=name,
        python=sys.version_info[:2],
        machine=platform.machine(),
        libc="".join(platform.libc_ver()),
    )
    if recipe.machine != MACHINE:
        raise MxnetEnvironmentError(
            f"no MXNet for {recipe.machine}", f"MXNet needs {MACHINE}, got {recipe.machine}", is_permanent=True
        )
    if recipe.python not in PYTHONS:
        version = ".".join(map(str, recipe.python))
        allowed = ", ".join(".".join(map(str, python)) for python in PYTHONS)
        raise MxnetEnvironmentError(
            f"no MXNet for Python {version}", f"MXNet needs Python {allowed}, got {version}", is_permanent=True
        )
    return recipe
