"""Run the lines of the tutorial "your own project" on a cluster that loses its master; they print what the page shows.

``make soak`` runs it: it deploys a cluster of its own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.run.user import User
from tests.e2e.console_blocks import outputs, script, sessions
from tests.e2e.laptop import Laptop, new_laptop
from tests.e2e.project.package_mirror import mirror_script

pytestmark = pytest.mark.soak

PAGE = Path(__file__).parents[3] / "docs/start/your-own-project.md"
SETTINGS = re.compile(r'^```json\n("context": \{.*?^\})\n```$', re.DOTALL | re.MULTILINE)
"""Matches the page's block of settings, which the reader copies into cdk.json."""

PACKAGE = "click"
"""Package in the page's requirements file; the nodes' image lacks it."""
MIRROR = "package-mirror.sh"


@pytest.fixture
def laptop(user: User, tmp_path: Path) -> Iterator[Laptop]:
    made = new_laptop(user, tmp_path)
    settings = SETTINGS.search(PAGE.read_text())
    assert settings
    made.set(**json.loads(f"{{{settings[1]}}}")["context"]["cluster"], setup=MIRROR)
    (made.checkout / MIRROR).write_text(mirror_script(PACKAGE))
    yield made
    made.run("cdk", "destroy", "--force")


def test_every_command_of_the_page_works(laptop: Laptop) -> None:
    [(machine, session)] = sessions(PAGE)
    assert machine == "laptop"
    printed = laptop.run("bash", "-c", script(session))
    for step, lines in zip(session, outputs(printed), strict=True):
        assert step.differences(lines) == [], f"{step.command}\n" + "\n".join(lines)
    # The numbers of the page are compared as numbers only.
    starts = {int(step) for step in re.findall(r"rank \d of 3 starts at step (\d+)", printed)}
    assert min(starts) >= 40
    assert len(re.findall(r"rank \d has weight 2\.00 and bias 1\.00", printed)) == 3
    # The new master has installed it too.
    for host in ("master", "worker2", "worker3"):
        log = laptop.on(host, "cat /var/log/deeplearning/setup.log")
        assert f"INFO requirements.txt: Successfully installed {PACKAGE}-" in log
