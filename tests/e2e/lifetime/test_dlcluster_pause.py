"""Pause a cluster: ``dlcluster pause`` waits until ranks have saved, and a durable training resumes with the same bits.

It takes about twenty minutes: `make soak` runs it.
"""

import json
import re
import shlex
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from local.faults.clients import client
from local.run.user import User
from tests.e2e.support.deployed_cluster import NODES, stack_outputs
from tests.e2e.support.durable_programs import OWN_SCRIPT, TRAINER_IN_BUCKET, TRAINER_IN_SHARED_DIRECTORY, Program
from tests.e2e.support.durable_training import CANNOT_TELL, MASTER, START_S, Training, now, wait_for_end, wait_for_nodes
from tests.e2e.support.group_states import instance_states, members
from tests.e2e.support.laptop import Laptop, new_laptop
from tests.waiting import wait_until

SAVE_S = 60
GRACE_S = 240
"""Grace of the ranks, of which they use a quarter."""
DRAIN_S = 90
"""Seconds that a node without ranks may take to end."""
RANK = f"""\
trap 'sleep {SAVE_S}; echo saved | aws s3 cp --quiet - "s3://$DEEPLEARNING_BUCKET/slow-$RANK"; exit 0' TERM
echo ready
while :; do sleep 1; done
"""
"""A rank that takes a minute to save."""
TRAIN = timedelta(minutes=4)
"""Time from the start of a training during which it does not end."""


@pytest.fixture(scope="module")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """Deploy a cluster with a shared directory; other files deploy one of the same name without."""
    laptop = new_laptop(user, tmp_path_factory.mktemp("pause"), {"worker_count": NODES - 1, "shared_storage": "efs"})
    laptop.run("cdk", "deploy")
    user.write_ssh_config()
    yield laptop
    laptop.run("cdk", "destroy", "--force")


def saved_ranks() -> list[int]:
    """Return the ranks that have saved."""
    listing = client("s3").list_objects_v2(Bucket=stack_outputs()["ClusterBucket"], Prefix="slow-")
    return sorted(int(item["Key"].removeprefix("slow-")) for item in listing.get("Contents", []))


def stored_record(job: str) -> dict[str, object]:
    """Return a job's record in the bucket."""
    stored = client("s3").get_object(Bucket=stack_outputs()["ClusterBucket"], Key=f"jobs/deeplearning/{job}.json")
    return dict(json.loads(stored["Body"].read()))


@pytest.mark.timeout(900)
def test_nodes_end_when_their_ranks_have_saved(laptop: Laptop) -> None:
    user = laptop.user
    wait_for_nodes(user)
    nodes = members()
    job = user.ssh(MASTER, f"launch --detach --grace {GRACE_S} {shlex.quote(RANK)}").strip()
    log = f"launch logs {job}"
    wait_until(lambda: user.ssh(MASTER, log).count("ready") == NODES, "the ranks", timeout_s=START_S, every_s=0.5)
    began = time.monotonic()
    laptop.run("dlcluster", "pause", "--yes")
    seconds = time.monotonic() - began
    assert saved_ranks() == [*range(NODES)]
    assert SAVE_S < seconds < SAVE_S + DRAIN_S
    assert instance_states(nodes) == {"terminated"}
    # The launcher on the master has had the time to record the job's end.
    assert stored_record(job)["end"] is not None


def submit_behind(user: User) -> str:
    """Submit a durable job that waits until all nodes are free, and prints the time at which it starts; return it."""
    line = "launch --durable --wait 'date -u +started=%Y-%m-%dT%H:%M:%SZ'"
    output = user.ssh(MASTER, f"{line} 2>&1")
    assert output.count(CANNOT_TELL) == 1
    return output.split()[-1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(OWN_SCRIPT, id="own-script"),
        pytest.param(TRAINER_IN_BUCKET, id="trainer-in-bucket"),
        pytest.param(TRAINER_IN_SHARED_DIRECTORY, id="trainer-in-shared-directory"),
    ],
)
def test_durable_training_goes_on_after_a_pause_before_the_next_job(
    laptop: Laptop, program: Program, request: pytest.FixtureRequest
) -> None:
    laptop.run("dlcluster", "resume")
    name = f"paused-{request.node.callspec.id}"
    training = Training.begin(laptop.user, name, slow_until=now() + TRAIN, program=program)
    behind = submit_behind(laptop.user)
    wait_until(lambda: training.saved_step() > 0, "a checkpoint", timeout_s=START_S, every_s=1.0)
    waiting = json.loads(laptop.user.ssh(MASTER, f"launch status --json {behind}"))
    assert (waiting["state"], waiting["attempt"]) == ("WAITING", 1)
    nodes = members()
    laptop.run("dlcluster", "pause", "--yes")
    assert (members(), instance_states(nodes)) == (set(), {"terminated"})
    step = training.saved_step()
    laptop.run("dlcluster", "resume")
    assert len(members()) == NODES
    assert not members() & nodes
    training.check_end(least_attempts=2, step=step)
    ends = {job: wait_for_end(laptop.user, job)["end"] for job in (training.job, behind)}
    starts = re.findall(r"started=(\S+)", laptop.user.ssh(MASTER, f"launch logs {behind}"))
    assert len(starts) == NODES
    assert ends[training.job] <= min(starts) <= ends[behind]
