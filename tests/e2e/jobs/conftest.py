"""Deploy this part's cluster by the lines of the tutorial "first cluster", as a new user types them."""

import pytest

from local.run.user import USER_SETTINGS, User
from tests.e2e.support.console_blocks import Step
from tests.e2e.support.deployed_cluster import NODES
from tests.e2e.support.laptop import Laptop
from tests.e2e.support.tutorial import FIRST_CLUSTER, INSTALL, new_user_laptop, page_settings, run_page


@pytest.fixture(scope="session")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    return new_user_laptop(user, tmp_path_factory.mktemp("laptop"))


@pytest.fixture(scope="session")
def first_cluster(laptop: Laptop) -> list[tuple[Step, list[str]]]:
    """Run the tutorial, whose first line deploys; return each command with the lines that it printed.

    The tests of this part expect the cluster that the other parts deploy.
    """
    assert {**page_settings(INSTALL), **USER_SETTINGS} == {"worker_count": NODES - 1, **USER_SETTINGS}
    return run_page(laptop, FIRST_CLUSTER)


@pytest.fixture(scope="session")
def deployed(first_cluster: list[tuple[Step, list[str]]]) -> None:
    """Replace the deploy of the other parts."""
