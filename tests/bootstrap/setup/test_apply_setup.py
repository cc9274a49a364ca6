"""Test that a running node adopts the setup of a later deploy: its configuration changes, and its services restart."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bootstrap.contract import AGENT_SERVICE, NODE_CONFIG_FILE, SETUP_SERVICE
from bootstrap.errors import SetupError
from bootstrap.files.paths import under_root
from bootstrap.setup.apply_setup import apply_setup
from bootstrap.setup.archive import SetupSource
from bootstrap.setup.progress import SetupProgress, write_progress
from tests.bootstrap.simulated_node import Clock, config_values

SOURCE = SetupSource(url="s3://assets/new.zip", sha256="1" * 64, timeout_s=60.0)


@dataclass
class Node:
    """A node whose setup service ends with the given state after a while."""

    root: Path
    ends_with: SetupProgress | None = None
    clock: Clock = field(default_factory=Clock)
    restarted: list[str] = field(default_factory=list)
    configured: list[str] = field(default_factory=list)

    def apply_setup(self) -> None:
        apply_setup(SOURCE, root=self.root, system=self, monotonic=self.clock, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.clock.now += seconds
        if self.ends_with and self.clock.now > 1010.0:
            write_progress(self.root, self.ends_with)

    def reload_units(self) -> None:
        pass

    def enable(self, unit: str) -> None:
        pass

    def enable_linger(self, user: str) -> None:
        pass

    def restart(self, unit: str) -> None:
        self.restarted.append(unit)
        self.configured.append(json.loads(under_root(self.root, NODE_CONFIG_FILE).read_text())["setup_sha256"])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    file = under_root(tmp_path, NODE_CONFIG_FILE)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(config_values("worker")))
    return Node(root=tmp_path)


def test_waits_for_the_end_and_keeps_the_rest_of_the_configuration(node: Node) -> None:
    # An earlier attempt at the same setup failed.
    write_progress(node.root, SetupProgress(state="failed", sha256=SOURCE.sha256, failure="no network"))
    node.ends_with = SetupProgress(state="done", sha256=SOURCE.sha256)
    node.apply_setup()
    assert (node.restarted, node.configured) == ([SETUP_SERVICE, AGENT_SERVICE], [SOURCE.sha256] * 2)
    new = {"setup": SOURCE.url, "setup_sha256": SOURCE.sha256, "setup_timeout_s": 60}
    assert json.loads(under_root(node.root, NODE_CONFIG_FILE).read_text()) == config_values("worker") | new


def test_error_is_the_last_line_of_the_setup(node: Node) -> None:
    node.ends_with = SetupProgress(state="failed", sha256=SOURCE.sha256, failure="E: no package foo")
    with pytest.raises(SetupError, match=r"^E: no package foo \(/var/log/deeplearning/setup.log has all lines\)$"):
        node.apply_setup()


def test_error_states_how_long_the_service_ran(node: Node) -> None:
    with pytest.raises(SetupError, match=r"waited 120 s for deeplearning-setup\.service to end"):
        node.apply_setup()
