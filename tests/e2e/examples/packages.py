"""Install what these tests need on the nodes into the project's cache, once: ``python -m tests.e2e.examples.packages``.

It prints the directory. Call it outside of a local AWS, whose nodes and user have no internet. The directory is an
environment for the nodes, with their PyTorch; a user brings it to them with ``dlcluster push``.
"""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from local.cache import cache_dir, cached_tree, recipe_hash

REPOSITORY: Final = Path(__file__).resolve().parents[3]
REQUIREMENTS: Final = REPOSITORY / "examples/requirements.txt"
PILLOW: Final = next(
    line for line in (REPOSITORY / "requirements-dev.txt").read_text().splitlines() if line.startswith("pillow==")
)
"""The trainer's, which the nodes' image lacks."""
PACKAGES: Final = "lib/python3.11/site-packages"
"""Directory of an environment's packages, with the version of the nodes' Python."""
INSTALL_S: Final = 600.0


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    print(cached_tree("examples", recipe_hash([REQUIREMENTS, Path(__file__)], extra=PILLOW), _build))


def _build(directory: Path) -> None:
    """Make an environment; its torch is that of the nodes' image, so pip must not look for what packages need."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--only-binary=:all:", "--no-compile", "--cache-dir", str(cache_dir() / "pip")]
    target = ["--target", str(directory / PACKAGES), "-r", str(REQUIREMENTS), PILLOW]
    subprocess.run([*pip, *options, *target], check=True, stdout=sys.stderr, timeout=INSTALL_S)
    (directory / PACKAGES / "pytorch.pth").write_text(f"/opt/pytorch/{PACKAGES}\n")
    (directory / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (directory / "bin").mkdir()
    (directory / "bin/python").symlink_to("/usr/bin/python3")


if __name__ == "__main__":
    main()
