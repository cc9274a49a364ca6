"""Test that the lines of the tutorials work on a cluster, and print what the pages show."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster
from tests.e2e.console_blocks import outputs, script, sessions

DOCS = Path(__file__).parents[3] / "docs"
MASTER = "deeplearning-master"


@pytest.fixture
def laptop(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Return the user's working directory; ssh is configured for the cluster as in docs/use/log-in.md."""
    config = Path.home() / ".ssh/config"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text(f"Include {cluster.user.ssh_config}\n")
    yield tmp_path
    config.unlink()


@pytest.mark.parametrize("page", ["start/first-cluster.md", "start/your-own-script.md"])
def test_tutorial_commands_run(cluster: Cluster, laptop: Path, page: str) -> None:
    for machine, session in sessions(DOCS / page):
        lines = script(session)
        if machine == "master":
            # ssh joins its arguments into one line for the login shell, which may contain line ends.
            printed = cluster.user.ssh(MASTER, f"cd\n{lines}\n")
        else:
            printed = cluster.user.output("bash", "-c", f"cd {laptop}\n{lines}\n")
        for step, found in zip(session, outputs(printed), strict=True):
            # Earlier tests have deployed other releases.
            own = [line for line in found if not line.startswith("releases differ: ")]
            assert step.differences(own) == [], f"{step.command}\n" + "\n".join(found)
