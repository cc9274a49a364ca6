"""Set up the launcher's peers, programs that run a command on many hosts, as their documentation recommends.

clush and pdsh are downloaded into the project's cache once; nothing is installed on the machine.
"""

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from local.cache import cached_tree

CLUSTERSHELL = "ClusterShell==1.10.1"
PDSH_PACKAGES = ("pdsh", "libgenders0")


def fetch_all() -> None:
    """Download all peers into the cache, because namespaces cannot reach the internet."""
    _clush_programs()
    pdsh_tree()


def clush(hosts: str) -> list[str]:
    """Return clush's command line without the command; its default fan-out is 64."""
    programs = _clush_programs()
    # Name the interpreter, because the script's first line has the path of the build.
    return [str(programs / "python"), str(programs / "clush"), "-w", hosts]


def _clush_programs() -> Path:
    return cached_tree("clush", CLUSTERSHELL.partition("==")[2], _build_clush) / "bin"


def pdsh(hosts: str) -> list[str]:
    """Return pdsh's command line without the command; needs ``pdsh_tree`` over /usr. Its default fan-out is 32."""
    return ["pdsh", "-R", "ssh", "-w", hosts]


def pdsh_tree() -> Path:
    """Return the tree of Debian's pdsh for /usr, the only place where it finds its modules."""
    return cached_tree("pdsh", "debian", _unpack_pdsh) / "usr"


def launch_py(hosts_file: Path) -> list[str]:
    """Return the command line of launch.py's method, without the command."""
    return [sys.executable, str(Path(__file__).with_name("_launch_py.py")), str(hosts_file)]


def versions() -> str:
    """Describe the versions of all programs."""
    commands: tuple[Sequence[str], ...] = ([*clush("x")[:2], "--version"], [*pdsh("x")[:1], "-V"], ["ssh", "-V"])
    runs = (subprocess.run(command, check=True, timeout=60, capture_output=True, text=True) for command in commands)
    return ", ".join((run.stdout or run.stderr).splitlines()[0].strip() for run in runs)


def _build_clush(tree: Path) -> None:
    venv.create(tree, with_pip=True)
    install = [str(tree / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", CLUSTERSHELL]
    subprocess.run(install, check=True, timeout=600, stdout=sys.stderr)


def _unpack_pdsh(tree: Path) -> None:
    subprocess.run(["apt-get", "download", "--quiet=2", *PDSH_PACKAGES], cwd=tree, check=True, timeout=600)
    for package in tree.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(tree)], check=True, timeout=60)
