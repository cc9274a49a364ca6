"""Create a Python environment for a user on the master from this machine's packages, like pip with a network.

Nodes of the local AWS have no internet, and the image's PyTorch environment has neither TensorBoard nor Jupyter.
"""

import io
import re
import subprocess
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from local.run.user import User

IN_IMAGE: Final = {"numpy"}
"""Packages of the image's environment, which the user's environment also sees."""
MAKE: Final = (
    "mkdir -p {0}/bin {0}/lib/python3.11/site-packages && ln -sfn /usr/bin/python3 {0}/bin/python && "
    "printf 'home = /usr/bin\\n' > {0}/pyvenv.cfg && cd {0}/lib/python3.11/site-packages && "
    "echo /opt/pytorch/lib/python3.11/site-packages > pytorch.pth && tar x"
)


def make_venv(
    user: User, name: str, *packages: str, files: dict[str, str] | None = None, master: str = "deeplearning-master"
) -> None:
    """Create an environment in the user's home on the master, with these packages and files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted({path for package in packages for path in _files(package)}):
            tar.add(Path(sysconfig.get_path("purelib"), path), arcname=path, recursive=False)
        for path, text in (files or {}).items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    command = user.ssh_command(master, MAKE.format(name))
    subprocess.run(command, input=archive.getvalue(), env=dict(user.environment), check=True, timeout=120)


def _files(package: str) -> Iterator[str]:
    """Yield the files of a package and of its dependencies."""
    pending, seen = [package], set(IN_IMAGE)
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        installed = distribution(name)
        yield from (str(path) for path in installed.files or () if ".." not in path.parts and path.suffix != ".pyc")
        pending += _needs(installed)


def _needs(installed: Distribution) -> Iterator[str]:
    for line in installed.requires or ():
        requirement, _, marker = line.partition(";")
        name = re.match(r"[\w.-]+", requirement)
        if name and "extra" not in marker:
            yield name[0].lower()
