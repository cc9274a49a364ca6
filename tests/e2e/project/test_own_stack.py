"""Use a cluster in a stack of the user's own, that of examples/own_stack.py, with dlcluster.

``make soak`` runs it: it deploys a cluster of its own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from local.run.user import USER_SETTINGS, User
from tests.e2e.support.laptop import Laptop, new_laptop

pytestmark = pytest.mark.soak

EXAMPLE: Final = Path(__file__).parents[3] / "examples/own_stack.py"
APP: Final = ("--app", "python own_stack.py")


@pytest.fixture
def laptop(user: User, tmp_path: Path) -> Iterator[Laptop]:
    made = new_laptop(user, tmp_path)
    text = EXAMPLE.read_text()
    settings = ", ".join(f"{name}={value!r}" for name, value in USER_SETTINGS.items())
    assert 'key_name="me"' in text
    (made.checkout / EXAMPLE.name).write_text(text.replace('key_name="me"', settings))
    yield made
    made.run("cdk", "destroy", *APP, "--force")


def test_dlcluster_uses_the_cluster_of_a_users_own_stack(laptop: Laptop) -> None:
    laptop.run("cdk", "deploy", *APP)
    [found] = json.loads(laptop.run("dlcluster", "list", "--json"))["clusters"]
    assert (found["name"], found["stack"], found["desired_nodes"]) == ("vision", "Vision", 2)
    laptop.wait_for_job_on("deeplearning-worker1", "deeplearning-worker2")
    before = node_ids(laptop)
    laptop.run("dlcluster", "pause", "--yes")
    laptop.run("dlcluster", "resume")
    laptop.wait_for_job_on("deeplearning-worker1", "deeplearning-worker2")
    assert len(before) == len(node_ids(laptop) - before) == 2


def node_ids(laptop: Laptop) -> set[str]:
    return {node["instance_id"] for node in json.loads(laptop.run("dlcluster", "status", "--json"))["nodes"]}
