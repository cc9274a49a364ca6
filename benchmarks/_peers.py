"""The launcher's peers for running a command on many hosts, each set up as its own documentation recommends.

clush and pdsh are fetched into the project's cache once, nothing is installed on the machine.
"""

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from local.run.cache import cached_tree

CLUSTERSHELL = "ClusterShell==1.10.1"
PDSH_PACKAGES = ("pdsh", "libgenders0")


def clush(hosts: str) -> list[str]:
    """Clush's command line without the command; its default fan-out is 64."""
    programs = cached_tree("clush", CLUSTERSHELL.partition("==")[2], _build_clush) / "bin"
    # By name, as the script's first line has the place where the tree was made.
    return [str(programs / "python"), str(programs / "clush"), "-w", hosts]


def pdsh(hosts: str) -> list[str]:
    """Pdsh's command line without the command, where ``programs`` lies over /usr; its default fan-out is 32."""
    return ["pdsh", "-R", "ssh", "-w", hosts]


def programs() -> Path:
    """What Debian's pdsh has under /usr: it finds its parts there alone."""
    return cached_tree("pdsh", "debian", _unpack_pdsh) / "usr"


def launch_py(hosts_file: Path) -> list[str]:
    """The command line of what MXNet's launch.py does, without the command."""
    return [sys.executable, str(Path(__file__).with_name("_launch_py.py")), str(hosts_file)]


def versions() -> str:
    """What is compared with what."""
    commands: tuple[Sequence[str], ...] = ([*clush("x")[:2], "--version"], [*pdsh("x")[:1], "-V"], ["ssh", "-V"])
    said = (subprocess.run(one, check=True, timeout=60, capture_output=True, text=True) for one in commands)
    return ", ".join((one.stdout or one.stderr).splitlines()[0].strip() for one in said)


def _build_clush(tree: Path) -> None:
    venv.create(tree, with_pip=True)
    install = [str(tree / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", CLUSTERSHELL]
    subprocess.run(install, check=True, timeout=600, stdout=sys.stderr)


def _unpack_pdsh(tree: Path) -> None:
    subprocess.run(["apt-get", "download", "--quiet=2", *PDSH_PACKAGES], cwd=tree, check=True, timeout=600)
    for package in tree.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True, timeout=60)
