"""Build an MXNet environment with pip, using the machine's pip configuration (such as a mirror)."""

import logging
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bootstrap.atomic_file import Permissions, write_file
from bootstrap.contract import HOROVOD_REQUIREMENTS_FILE, MXNET_FRAMEWORKS_FILE, PYTORCH_PYTHON
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.mxnet_environment.recipe import (
    BUILD_TOOLS,
    HOROVOD,
    HOROVOD_OPTIONS,
    HOROVOD_SOURCE,
    MPIRUN,
    MXNET_PATCHES,
    PATCHES_MODULE,
    SYSTEM_PYTHON,
    Recipe,
)

log = logging.getLogger(__name__)

COMPILER: Final = "c++"
OUTPUT_TAIL: Final = 600
"""Number of characters of a failed program's output to report."""
IMPORTS: Final = {"mxnet": "import mxnet", "horovod": "import horovod.mxnet"}
ENVIRON: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")


class Builder:
    """Runs the programs of one build until its deadline."""

    def __init__(self, *, deadline: float, environ: Mapping[str, str] = ENVIRON) -> None:
        self._deadline = deadline
        self._environ = environ

    def build(self, recipe: Recipe, directory: Path) -> None:
        """Build the environment at ``directory``, its final path, and import its frameworks once."""
        shutil.rmtree(directory, ignore_errors=True)
        self._run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", str(directory)], failure="venv failed")
        pip = self._pip(directory)
        for requirements in recipe.requirements:
            # The list includes every dependency, so that pip resolves none and compiles nothing.
            wheels = ["--require-hashes", "--only-binary=:all:", "--no-deps", "-r", str(requirements)]
            self._run([*pip, "install", *wheels], failure="pip install failed")
        version = ".".join(map(str, recipe.python))
        install_patches(directory / f"lib/python{version}/site-packages")
        if HOROVOD in recipe.frameworks:
            self._install_horovod(pip, directory)
            write_file(directory / "bin/mpirun", MPIRUN, Permissions(mode=0o755))
        for framework in recipe.frameworks:
            self._run([str(directory / "bin/python"), "-c", IMPORTS[framework]], failure=f"import {framework} failed")
        write_file(
            directory / Path(MXNET_FRAMEWORKS_FILE).name,
            "".join(f"{framework}\n" for framework in recipe.frameworks),
        )

    def _pip(self, directory: Path) -> list[str]:
        """Return a pip that installs into the environment: its own or the PyTorch image's, because Debian has none."""
        python = str(directory / "bin/python")
        if self._works([python, "-m", "ensurepip", "--default-pip"]):
            return [python, *PIP]
        if self._works([PYTORCH_PYTHON, *PIP, "--version"]):
            return [PYTORCH_PYTHON, *PIP, "--python", python]
        raise MxnetEnvironmentError(
            "no pip",
            f"MXNet needs the package python3-venv or pip in {PYTORCH_PYTHON}, found neither",
            is_permanent=True,
        )

    def _install_horovod(self, pip: Sequence[str], directory: Path) -> None:
        """Install the wheel that the image lists, or else compile one, which takes minutes."""
        install = [*pip, "install", "--no-deps", "--require-hashes"]
        # On PyPI, a project's owner can add a wheel to an old release, so install only a wheel whose hash is listed.
        listed = [*install, "--only-binary=:all:", "-r", HOROVOD_REQUIREMENTS_FILE]
        if Path(HOROVOD_REQUIREMENTS_FILE).is_file() and self._works(listed):
            return
        if shutil.which(COMPILER, path=self._environ["PATH"]) is None:
            raise MxnetEnvironmentError(
                "no C++ compiler", f"Horovod needs {COMPILER} to compile, found none: install g++", is_permanent=True
            )
        log.info("compiling Horovod")
        self._run([*pip, "install", "--require-hashes", "-r", str(BUILD_TOOLS)], failure="pip install failed")
        path = f"{directory}/bin:{self._environ['PATH']}"
        compiling = Builder(deadline=self._deadline, environ={**self._environ, **HOROVOD_OPTIONS, "PATH": path})
        # pip checks the hash before it runs setup.py. Use no cache: a wheel that root compiled earlier fits another
        # environment.
        source = ["--no-cache-dir", "--no-binary=:all:", "--no-build-isolation", "-r", str(HOROVOD_SOURCE)]
        compiling._run([*install, *source], failure="compiling Horovod failed")
        self._run([*pip, "uninstall", "--yes", "-r", str(BUILD_TOOLS)], failure="pip uninstall failed")

    def _works(self, command: Sequence[str]) -> bool:
        try:
            self._run(command, failure="")
        except MxnetEnvironmentError as error:
            log.info("%s", error)
            return False
        return True

    def _run(self, command: Sequence[str], *, failure: str) -> None:
        left = max(1.0, self._deadline - time.monotonic())
        try:
            subprocess.run(
                command, env=self._environ, check=True, timeout=left, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd="/",
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            output = " ".join(error.stdout.split())[-OUTPUT_TAIL:]
            raise MxnetEnvironmentError(failure, f"{' '.join(command)} exited {error.returncode}: {output}") from error
        except subprocess.TimeoutExpired as error:
            raise MxnetEnvironmentError(
                "build took too long", f"{' '.join(command)} timed out after {left:.0f} s"
            ) from error
        except OSError as error:
            raise MxnetEnvironmentError(failure, f"{command[0]}: {error.strerror}") from error


def install_patches(site_packages: Path) -> None:
    """Install the patches, which every Python of the environment imports at startup."""
    write_file(site_packages / f"{PATCHES_MODULE}.py", MXNET_PATCHES.read_text())
    write_file(site_packages / f"{PATCHES_MODULE}.pth", f"import {PATCHES_MODULE}\n")
