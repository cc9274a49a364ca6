"""Test that a durable training whose Capacity Block ends continues in the next one and ends with the same bits.

The test takes about ten minutes, mostly waiting for the blocks: `make soak` runs it.
"""

import math
from datetime import datetime, timedelta, timezone

import pytest

from local.commands.capacity_block import buy_capacity_block
from local.run.user import USER_SETTINGS, User, deploy_arguments
from tests.e2e.support.deployed_cluster import NODES
from tests.e2e.support.durable_training import Training, now, wait_for_nodes
from tests.e2e.support.group_states import instance_states, members
from tests.waiting import wait_until

BEFORE_END = timedelta(minutes=40)
"""Time before a block's end at which its nodes end."""
DEPLOY = timedelta(seconds=90)
"""Time that a deploy without nodes may take."""
IN_BLOCK = timedelta(minutes=4)
"""Time that the first block's nodes have: to boot, and to train for a while."""


def buy(*, after: timedelta, usable: timedelta) -> tuple[str, datetime, datetime]:
    """Buy a block for all nodes; return its ID, its start and the time at which its nodes end."""
    # Schedules act at full minutes.
    minute = timedelta(minutes=1)
    starts = datetime.min.replace(tzinfo=timezone.utc)
    starts += math.ceil((now() + after - starts) / minute) * minute
    ends = starts + usable + BEFORE_END
    block = buy_capacity_block(USER_SETTINGS["instance_type"], count=NODES, starts=starts, ends=ends)
    return block, starts, starts + usable


def deploy(user: User, block: str) -> None:
    settings = ("-c", "purchase=capacity-block", "-c", f"capacity_reservation={block}")
    user.cdk(*deploy_arguments(nodes=NODES), *settings)


@pytest.mark.timeout(1200)
def test_durable_training_continues_in_the_next_block(user: User) -> None:
    block, starts, goes = buy(after=DEPLOY, usable=IN_BLOCK)
    deploy(user, block)
    assert now() < starts, "the deploy took longer than the time before the block"
    assert members() == set()
    assert f"Capacity Block {block} starts in 0 h" in user.output("dlcluster", "status")

    wait_until(lambda: len(members()) == NODES, "the block's start", timeout_s=DEPLOY.total_seconds() + 60)
    assert now() >= starts
    first = members()
    wait_for_nodes(user)
    user.write_ssh_config()
    training = Training.begin(user, "durable", slow_until=goes)

    left = (goes - now()).total_seconds()
    assert left > 0, "the nodes booted for longer than the block lasts"
    wait_until(lambda: not members(), "the nodes' end before the block's", timeout_s=left + 120)
    assert now() >= goes
    wait_until(lambda: instance_states(first) == {"terminated"}, "the end of all nodes", timeout_s=120)

    block, starts, _ = buy(after=DEPLOY, usable=timedelta(hours=1))
    deploy(user, block)
    assert members() == set()
    wait_until(lambda: len(members()) == NODES, "the next block's start", timeout_s=DEPLOY.total_seconds() + 60)
    wait_for_nodes(user)
    assert not members() & first
    training.check_end(least_attempts=2, step=training.saved_step())
