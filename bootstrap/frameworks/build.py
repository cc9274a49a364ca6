"""Builds an environment in its place, with the machine's own pip configuration: a mirror is where pip finds one."""

import logging
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bootstrap.atomic_file import Access, write_file
from bootstrap.contract import ENGINES_LIST, HOROVOD_WHEEL, PYTORCH_PYTHON
from bootstrap.errors import FrameworkError
from bootstrap.frameworks.recipe import (
    BUILD_TOOLS,
    HOROVOD,
    HOROVOD_OPTIONS,
    HOROVOD_SOURCE,
    MENDS,
    MENDS_MODULE,
    MPIRUN,
    SYSTEM_PYTHON,
    Recipe,
)

log = logging.getLogger(__name__)

COMPILER: Final = "c++"
SAID: Final = 600
"""Characters of a failed program's last words."""
IMPORTS: Final = {"mxnet": "import mxnet", "horovod": "import horovod.mxnet"}
ENVIRON: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")


class Builder:
    """Runs the programs of one build, all of them before one deadline."""

    def __init__(self, *, deadline: float, environ: Mapping[str, str] = ENVIRON) -> None:
        self._deadline = deadline
        self._environ = environ

    def build(self, recipe: Recipe, directory: Path) -> None:
        """Make the environment at ``directory``, its final place, and see whether it works."""
        shutil.rmtree(directory, ignore_errors=True)
        self._run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", str(directory)], failure="venv failed")
        pip = self._pip(directory)
        for requirements in recipe.requirements:
            # All are listed, so that pip need not look for what they ask for; nothing is compiled.
            wheels = ["--require-hashes", "--only-binary=:all:", "--no-deps", "-r", str(requirements)]
            self._run([*pip, "install", *wheels], failure="pip install failed")
        version = ".".join(map(str, recipe.python))
        add_mends(directory / f"lib/python{version}/site-packages")
        if HOROVOD in recipe.frameworks:
            self._install_horovod(pip, directory)
            write_file(directory / "bin/mpirun", MPIRUN, Access(mode=0o755))
        for framework in recipe.frameworks:
            self._run([str(directory / "bin/python"), "-c", IMPORTS[framework]], failure=f"import {framework} failed")
        write_file(directory / Path(ENGINES_LIST).name, "".join(f"{framework}\n" for framework in recipe.frameworks))

    def _pip(self, directory: Path) -> list[str]:
        """A pip that installs into the environment: its own, or the PyTorch image's; Debian's Python has none."""
        python = str(directory / "bin/python")
        if self._works([python, "-m", "ensurepip", "--default-pip"]):
            return [python, *PIP]
        if self._works([PYTORCH_PYTHON, *PIP, "--version"]):
            return [PYTORCH_PYTHON, *PIP, "--python", python]
        raise FrameworkError(
            "no pip", f"engines need the package python3-venv, or pip of {PYTORCH_PYTHON}", lasting=True
        )

    def _install_horovod(self, pip: Sequence[str], directory: Path) -> None:
        """Take the wheel that the image vouches for, else compile one, for some minutes."""
        install = [*pip, "install", "--no-deps", "--require-hashes"]
        # Whoever owns the project on PyPI can add a wheel to an old release: none is taken that nobody has listed.
        if Path(HOROVOD_WHEEL).is_file() and self._works([*install, "--only-binary=:all:", "-r", HOROVOD_WHEEL]):
            return
        if shutil.which(COMPILER, path=self._environ["PATH"]) is None:
            raise FrameworkError(
                "no C++ compiler", f"to compile Horovod takes {COMPILER}, as with the package g++", lasting=True
            )
        log.info("compiling Horovod")
        self._run([*pip, "install", "--require-hashes", "-r", str(BUILD_TOOLS)], failure="pip install failed")
        path = f"{directory}/bin:{self._environ['PATH']}"
        compiling = Builder(deadline=self._deadline, environ={**self._environ, **HOROVOD_OPTIONS, "PATH": path})
        # Compared with its hash before its setup.py runs. A wheel that root compiled once is for another environment.
        source = ["--no-cache-dir", "--no-binary=:all:", "--no-build-isolation", "-r", str(HOROVOD_SOURCE)]
        compiling._run([*install, *source], failure="compiling Horovod failed")
        self._run([*pip, "uninstall", "--yes", "-r", str(BUILD_TOOLS)], failure="pip uninstall failed")

    def _works(self, command: Sequence[str]) -> bool:
        try:
            self._run(command, failure="")
        except FrameworkError as error:
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
            said = " ".join(error.stdout.split())[-SAID:]
            raise FrameworkError(failure, f"{' '.join(command)} exited {error.returncode}: {said}") from error
        except subprocess.TimeoutExpired as error:
            raise FrameworkError("build took too long", f"{' '.join(command)}: no end in time") from error
        except OSError as error:
            raise FrameworkError(failure, f"{command[0]}: {error.strerror}") from error


def add_mends(site_packages: Path) -> None:
    """Have each Python of the environment run the mends at its start."""
    write_file(site_packages / f"{MENDS_MODULE}.py", MENDS.read_text())
    write_file(site_packages / f"{MENDS_MODULE}.pth", f"import {MENDS_MODULE}\n")
