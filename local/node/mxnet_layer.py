"""Build the image layer for clusters with the setting ``frameworks``: what a company's own image adds to Amazon's.

Nodes have no internet, so the layer holds a mirror of the wheels that the recipes name, Horovod's among them, which
is compiled here once, and an /etc/pip.conf that points to it. The product installs with plain pip, as it does on AWS.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bootstrap.contract import HOROVOD_REQUIREMENTS_FILE
from bootstrap.mxnet_environment.build import install_patches
from bootstrap.mxnet_environment.recipe import BUILD_TOOLS, CONTENTS, HOROVOD_OPTIONS, HOROVOD_SOURCE, SYSTEM_PYTHON
from local.cache import cache_dir, cached_tree, recipe_hash
from local.errors import LocalError

MIRROR: Final = "srv/wheels"
LIBRARIES: Final = ("libgomp1", "libquadmath0")
"""Libraries that come with the compiler of Amazon's images; MXNet needs them."""
LISTS: Final = tuple(BUILD_TOOLS.with_name(f"{framework}.txt") for framework in CONTENTS)


def mxnet_layer() -> Path:
    """Build the layer unless it exists; this takes some minutes, once."""
    compiled = repr(sorted(HOROVOD_OPTIONS.items()))
    recipe = [*LISTS, HOROVOD_SOURCE, BUILD_TOOLS, Path(__file__)]
    return cached_tree("image-mxnet", recipe_hash(recipe, extra=compiled), _build)


def _build(layer: Path) -> None:
    for program in ("c++", "make"):
        if shutil.which(program) is None:
            raise LocalError(f"to compile Horovod takes {program}: apt-get install g++ make")
    mirror = layer / MIRROR
    mirror.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        _fill(mirror, Path(work))
        _add_libraries(layer, Path(work))
    configuration = layer / "etc/pip.conf"
    configuration.parent.mkdir()
    configuration.write_text(f"[global]\nno-index = true\nfind-links = /{MIRROR}\n")
    [wheel] = mirror.glob("horovod-*.whl")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    version = wheel.name.split("-")[1]
    Path(layer, HOROVOD_REQUIREMENTS_FILE.lstrip("/")).write_text(f"horovod=={version} --hash=sha256:{sha256}\n")


def _fill(mirror: Path, work: Path) -> None:
    """Put every wheel into the mirror, Horovod's last because it is compiled against the others."""
    environment = work / "environment"
    _run(SYSTEM_PYTHON, "-m", "venv", environment)
    pip = environment / "bin/pip"
    for requirements in LISTS:
        wheels: list[str | Path] = ["--require-hashes", "--only-binary=:all:", "--no-deps", "-r", requirements]
        _run(pip, "download", *_quiet(), *wheels, "--dest", mirror)
        _run(pip, "install", *_quiet(), "--no-index", "--find-links", mirror, *wheels)
    [site_packages] = environment.glob("lib/python3.*/site-packages")
    install_patches(site_packages)
    _run(pip, "install", *_quiet(), "--require-hashes", "-r", BUILD_TOOLS)
    compiling = {**HOROVOD_OPTIONS, "PATH": f"{environment}/bin:{os.environ['PATH']}"}
    wheel = ["wheel", *_quiet(), "--no-cache-dir", "--no-deps", "--no-build-isolation", "--no-binary=:all:"]
    _run(pip, *wheel, "--require-hashes", "-r", HOROVOD_SOURCE, "--wheel-dir", mirror, environment=compiling)


def _add_libraries(layer: Path, work: Path) -> None:
    packages = work / "packages"
    packages.mkdir()
    _run("apt-get", "download", "-qq", *LIBRARIES, cwd=packages)
    for package in packages.iterdir():
        _run("dpkg-deb", "-x", package, layer)


def _quiet() -> list[str]:
    return ["--quiet", "--disable-pip-version-check", "--cache-dir", str(cache_dir() / "pip")]


def _run(*command: str | Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
    subprocess.run(
        list(map(str, command)),
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
        cwd=cwd,
    )
