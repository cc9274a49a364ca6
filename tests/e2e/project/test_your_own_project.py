"""Run the lines of the tutorial "your own project" on a cluster that loses its master; they print what the page shows.

``make soak`` runs it: it deploys a cluster of its own.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.run.user import User
from tests.e2e.project.package_mirror import mirror_script
from tests.e2e.support.laptop import Laptop, new_laptop
from tests.e2e.support.tutorial import DOCS, page_settings, run_page

pytestmark = pytest.mark.soak

PAGE = DOCS / "start/your-own-project.md"
PACKAGE = "click"
"""Package in the page's requirements file; the nodes' image lacks it."""
MIRROR = "package-mirror.sh"


@pytest.fixture
def laptop(user: User, tmp_path: Path) -> Iterator[Laptop]:
    made = new_laptop(user, tmp_path)
    made.set(**page_settings(PAGE), setup=MIRROR)
    (made.checkout / MIRROR).write_text(mirror_script(PACKAGE))
    yield made
    made.run("cdk", "destroy", "--force")


def test_every_command_of_the_page_works(laptop: Laptop) -> None:
    found = run_page(laptop, PAGE)
    for step, lines in found:
        assert step.differences(lines) == [], f"{step.command}\n" + "\n".join(lines)
    printed = "\n".join(line for _, lines in found for line in lines)
    # The numbers of the page are compared as numbers only.
    starts = {int(step) for step in re.findall(r"rank \d of 3 starts at step (\d+)", printed)}
    assert min(starts) >= 40
    assert len(re.findall(r"rank \d has weight 2\.00 and bias 1\.00", printed)) == 3
    # The new master has installed it too.
    for host in ("master", "worker2", "worker3"):
        log = laptop.on(host, "cat /var/log/deeplearning/setup.log")
        assert f"INFO requirements.txt: Successfully installed {PACKAGE}-" in log
