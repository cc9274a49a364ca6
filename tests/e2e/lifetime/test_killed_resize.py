"""Check that the next ``dlcluster resize`` completes one that was killed in the middle of its deploy.

It deploys four times: `make soak` runs it.
"""

from pathlib import Path

import pytest

from local.run.user import User
from tests.e2e.support.group_states import fixed_size, group_sizes, members
from tests.e2e.support.guest_stack import APP, AWAITED, signal_guest, stack_status, write_stack
from tests.e2e.support.laptop import COMMAND_S, Laptop, kill, new_laptop, wait_for_line
from tests.waiting import wait_until

CLUSTER = "resized"
DEPLOY_S = 300.0
PROGRESS, COMPLETE = "UPDATE_IN_PROGRESS", "UPDATE_COMPLETE"


def resize(workers: int) -> tuple[str, ...]:
    return ("dlcluster", "resize", str(workers), "--yes")


@pytest.fixture
def laptop(user: User, tmp_path: Path) -> Laptop:
    made = new_laptop(user, tmp_path, {"cluster_name": CLUSTER, "worker_count": 1})
    APP.make(made.checkout)
    write_stack(made)
    made.run("cdk", "deploy")
    return made


@pytest.mark.timeout(1500)
def test_next_call_completes_a_resize_that_was_killed_in_its_deploy(laptop: Laptop) -> None:
    before = members(CLUSTER)
    killed = laptop.start(*resize(2))
    wait_for_line(killed, "creating CloudFormation changeset")
    kill(killed, group=True)
    assert laptop.settings["worker_count"] == 2
    laptop.run(*resize(2))
    assert group_sizes(CLUSTER) == [fixed_size(1), fixed_size(2)]
    assert before < members(CLUSTER)

    write_stack(laptop, guest=AWAITED)
    killed = laptop.start(*resize(1))
    wait_until(lambda: stack_status(CLUSTER) == PROGRESS, "the update", timeout_s=DEPLOY_S)
    kill(killed, group=False)
    refusal = f"stack {CLUSTER} is {PROGRESS}: wait until CloudFormation has finished, try again"
    assert refusal in laptop.output_of_failure(*resize(1))
    assert group_sizes(CLUSTER) == [fixed_size(1), fixed_size(2)]
    signal_guest(CLUSTER)
    wait_until(lambda: stack_status(CLUSTER) == COMPLETE, "the update's end", timeout_s=COMMAND_S)
    laptop.run(*resize(1))
    assert group_sizes(CLUSTER) == [fixed_size(1), fixed_size(1)]
    assert laptop.settings["worker_count"] == 1
    wait_until(lambda: members(CLUSTER) == before, "the newest worker's end", timeout_s=DEPLOY_S)
    laptop.run("cdk", "destroy", "--force")
    assert not stack_status(CLUSTER)
