"""Draw the documentation's pictures from a run: the tutorials' sessions as SVG, TensorBoard in headless Chromium.

``make docs-pictures`` runs this as ``python -m docs.pictures DIRECTORY`` inside a local AWS, which discards anything
written to the checkout. Look at the pictures before you commit them.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from local.run.user import User, temporary_user
from tests.e2e.support.console_blocks import OMITTED, Step, general
from tests.e2e.support.tutorial import DOCS, FIRST_CLUSTER, OWN_SCRIPT, new_user_laptop, run_page, ssh_configured
from tests.e2e.support.user_venv import make_venv

PICTURES: Final = DOCS / "pictures"
PAGES: Final[Mapping[str, Path]] = {"first-cluster": FIRST_CLUSTER, "your-own-script": OWN_SCRIPT}
"""Tutorial of each picture."""
COLUMNS: Final = 116
MAX_LINES: Final = 12
"""Number of lines at the end of a command's output in a picture, beside those that the page shows."""
TRAIN: Final = (
    "launch --env PYTHONPATH:/home/ubuntu/tools/lib/python3.11/site-packages python /opt/deeplearning/trainer "
    "--network lenet --kv-store dist_sync --num-epochs 8 --tensorboard runs/lenet"
)
"""Training whose rank 0 finds TensorBoard in the user's environment, because the image has none."""
CHROMIUM: Final = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--window-size=1280,800", "--virtual-time-budget=20000"),
)


def main(directory: Path) -> int:
    """Write the pictures into a directory; return the exit code."""
    if shutil.which("chromium") is None:
        sys.stderr.write("error: no chromium on this machine: apt-get install chromium\n")
        return 1
    with bootstrapped_user() as user, tempfile.TemporaryDirectory() as home:
        laptop = new_user_laptop(user, Path(home))
        with ssh_configured(user):
            for name, page in PAGES.items():
                (directory / f"{name}.svg").write_text(session_svg(run_page(laptop, page), title=name))
        draw_tensorboard(user, directory / "tensorboard.png")
    return 0


@contextmanager
def bootstrapped_user() -> Iterator[User]:
    """Yield a user whose account is ready for the tutorials' first line."""
    with temporary_user() as own:
        user = replace(own, environment={**own.environment, "CDK_VALIDATION": "false"})
        user.cdk("bootstrap", "aws://123456789012/us-east-1")
        yield user


def session_svg(printed: Sequence[tuple[Step, Sequence[str]]], *, title: str) -> str:
    """Return a picture of a terminal with the commands and their output."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for step, lines in printed:
        first, *rest = step.command.splitlines()
        console.print(Text.assemble((f"{step.machine}$ ", "bold green"), first), soft_wrap=False)
        for line in (*rest, *shortened(step, lines)):
            console.print(Text(line, no_wrap=True, overflow="ellipsis"))
    # Leave out the fonts that rich would fetch from the web.
    plain = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title=title, code_format=plain, unique_id=title)


def shortened(step: Step, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a command's output that its page shows, and its last ones; a mark stands for the others."""
    shown, last = {general(line) for line in step.shown}, len(lines) - MAX_LINES
    is_omitting = False
    for number, line in enumerate(lines):
        if number >= last or general(line) in shown:
            yield line
            is_omitting = False
        elif not is_omitting:
            yield OMITTED
            is_omitting = True


def draw_tensorboard(user: User, path: Path) -> None:
    """Train on all nodes, and let Chromium open TensorBoard through the command's tunnel."""
    make_venv(user, "tools", "tensorboard")
    user.ssh("deeplearning-master", TRAIN)
    words = ["dlcluster", "tensorboard", "--venv", "tools", "--logdir", "runs"]
    with subprocess.Popen(words, env=dict(user.environment), stdout=subprocess.PIPE, text=True) as board:
        try:
            assert board.stdout is not None
            address = board.stdout.readline().split()[0]
            with tempfile.TemporaryDirectory() as home:
                command = [*CHROMIUM, f"--user-data-dir={home}", f"--screenshot={path}", f"{address}#timeseries"]
                subprocess.run(command, env={**os.environ, "HOME": home}, check=True, timeout=120)
        finally:
            board.terminate()


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
