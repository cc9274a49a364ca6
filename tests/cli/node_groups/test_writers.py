"""Compare every writer of sizes in every state of a cluster with the table in docs/how/sizes.md."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bootstrap.aws.auto_scaling import GroupRequests
from bootstrap.contract import MASTER, WORKER
from cli.errors import EXIT_FAILED
from cli.main import main
from stacks.settings.nodes import declared_sizes
from tests.cli.node_groups.nodeless_cluster import DECLARED, NAME, STATES, NodelessCluster, in_state
from tests.cli.node_groups.schedule_calls import end_block, expire, start_block
from tests.cli.up.up_cluster import UpCluster

PAGE = Path(__file__).parents[3] / "docs/how/sizes.md"


def deploy_something_else(deployed: NodelessCluster) -> None:
    deployed.update(DECLARED, user_data="second")


def deploy_three_workers(deployed: NodelessCluster) -> None:
    deployed.update(declared_sizes(worker_count=3, needed_workers=3))


def deploy_one_needed(deployed: NodelessCluster) -> None:
    deployed.update(declared_sizes(worker_count=2, needed_workers=1))


def fail_to_deploy(deployed: NodelessCluster) -> None:
    deployed.update(DECLARED, user_data="second", fails=True)
    assert deployed.stacks.status(NAME) == "UPDATE_ROLLBACK_COMPLETE"


def pause_when_idle(deployed: NodelessCluster) -> None:
    """Pause like the master's agent; tests/bootstrap/idle tests the decision."""
    master, _ = deployed.names()
    GroupRequests(lambda: deployed.autoscaling, group=master, instance_id="i-1").pause_cluster(NAME)


def find_room(cluster: NodelessCluster) -> None:
    """Run ``dlcluster up``; it refuses to touch other sizes than the declared ones, unless the cluster is paused."""
    before = cluster.sizes()
    code = main(["up", "--yes"])
    assert (code, cluster.sizes()) in [(0, DECLARED), (EXIT_FAILED, before)]


def run(*words: str) -> Callable[[NodelessCluster], None]:
    def run_command(_deployed: NodelessCluster) -> None:
        assert main([*words]) == 0

    return run_command


UP = "`dlcluster up`"
WRITERS: dict[str, Callable[[NodelessCluster], None]] = {
    "`cdk deploy` of anything but sizes": deploy_something_else,
    "`cdk deploy` of `worker_count` 3": deploy_three_workers,
    "`cdk deploy` of `min_workers` 1": deploy_one_needed,
    "`cdk deploy` that fails and is rolled back": fail_to_deploy,
    "`dlcluster pause`": run("pause", "--yes"),
    "`dlcluster resume`": run("resume"),
    "`dlcluster resize 3`": run("resize", "3", "--yes"),
    UP: find_room,
    "the schedule of `expires`": expire,
    "the master, with `idle_stop`": pause_when_idle,
    "the schedule at a Capacity Block's start": start_block,
    "the schedule before a Capacity Block's end": end_block,
}
CELL = re.compile(r"(?P<master>\d) \+ (?P<workers>\d)(?:, .*)?")


def table() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of the table: the writer, and the outcome by state."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    for writer, *cells in rows:
        yield writer, dict(zip(head[1:], cells, strict=True))


def test_docs_table_lists_every_writer_and_state() -> None:
    rows = dict(table())
    assert rows.keys() == WRITERS.keys()
    assert all([*cells] == [*STATES] for cells in rows.values())


@pytest.fixture
def writes_to(writer: str, request: pytest.FixtureRequest) -> NodelessCluster:
    """Return the deployed cluster; for ``dlcluster up``, one whose zone it has chosen."""
    if writer != UP:
        deployed: NodelessCluster = request.getfixturevalue("deployed")
        return deployed
    placed: UpCluster = request.getfixturevalue("cluster")
    placed.aws.capacities.unlink()  # every zone has room
    assert placed.up() == 0
    return placed


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("writer", WRITERS)
def test_each_writer_leaves_the_documented_sizes(writes_to: NodelessCluster, writer: str, state: str) -> None:
    cell = CELL.fullmatch(dict(table())[writer][state])
    assert cell
    WRITERS[writer](in_state(writes_to, state))
    expected = (int(cell["master"]), int(cell["workers"]))
    sizes = writes_to.sizes()
    assert (sizes[MASTER].desired_capacity, sizes[WORKER].desired_capacity) == expected
    assert all(size.is_valid for size in sizes.values())
    assert tuple(map(len, writes_to.instances().values())) == expected
