"""Deploy one cluster with a setup for all tests of this directory, in the order of their files."""

from collections.abc import Iterator

import pytest

from local.run.user import User
from tests.e2e.bake.setup_runs import SETUP, SETUP_FILE
from tests.e2e.support.deployed_cluster import NODES
from tests.e2e.support.laptop import Laptop, new_laptop


@pytest.fixture(scope="session")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    made = new_laptop(user, tmp_path_factory.mktemp("bake"))
    (made.checkout / SETUP_FILE).write_text(SETUP)
    made.set(worker_count=NODES - 1, setup=SETUP_FILE)
    made.run("cdk", "deploy")
    yield made
    made.run("cdk", "destroy", "--force")
