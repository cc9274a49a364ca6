"""Download JupyterLab for a node into the project's cache, once: ``python -m tests.e2e.notebooks.wheels``.

It prints the directory. Call it outside of a local AWS, whose nodes and user have no internet.
"""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from local.cache import cache_dir, cached_tree, recipe_hash

REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
DOWNLOAD_S: Final = 600.0


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    print(cached_tree("jupyterlab", recipe_hash([REQUIREMENTS, Path(__file__)]), _download))


def _download(directory: Path) -> None:
    """Download the wheels for this Python, whose version is that of the nodes."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--only-binary=:all:", "--cache-dir", str(cache_dir() / "pip"), "--dest", str(directory)]
    subprocess.run([*pip, *options, "-r", str(REQUIREMENTS)], check=True, stdout=sys.stderr, timeout=DOWNLOAD_S)


if __name__ == "__main__":
    main()
