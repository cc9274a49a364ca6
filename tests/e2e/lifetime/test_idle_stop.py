"""Check that a cluster that nobody uses pauses itself, and one whose nodes work outside ``launch`` does not.

Both clusters wait for eleven minutes, as idle_stop has a minimum of ten: `make soak` runs it.
"""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from local.faults import Faults
from local.faults.clients import client
from local.run.user import User
from tests.e2e.support.group_states import PAUSED, group_sizes, instance_states, members
from tests.e2e.support.laptop import new_laptop
from tests.waiting import wait_until

NODES = 2
IDLE, BUSY = "idle", "busy"
IDLE_STOP = timedelta(minutes=10)
ANNOUNCED = timedelta(minutes=5)
DEPLOY_S = 600.0
LATE_S = 240.0
"""Seconds after which the pause is late: reports, passes and a busy machine take some."""
SENDS = """\
import socket, time
address = socket.gethostbyname("deeplearning-master"), 9
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data:
    while True:
        data.sendto(bytes(30_000), address)
        time.sleep(0.1)
"""
"""A program that sends three times the traffic of an idle node, and takes no CPU time."""


def deploy(user: User, directory: Path) -> None:
    """Deploy both clusters, each from a checkout of its own."""
    settings = {"worker_count": NODES - 1, "idle_stop": "10m"}
    laptops = [new_laptop(user, directory / name, settings | {"cluster_name": name}) for name in (BUSY, IDLE)]
    for process in [laptop.start("cdk", "deploy") for laptop in laptops]:
        output, _ = process.communicate(timeout=DEPLOY_S)
        assert process.returncode == 0, output


def status(user: User, cluster: str) -> dict[str, str | None]:
    return dict(json.loads(user.output("dlcluster", "status", "--cluster", cluster, "--json")))


def time_of(text: str | None) -> datetime:
    assert text is not None
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def launch_times(instances: set[str]) -> list[datetime]:
    reservations = client("ec2").describe_instances(InstanceIds=sorted(instances))["Reservations"]
    return [instance["LaunchTime"] for reservation in reservations for instance in reservation["Instances"]]


@pytest.mark.timeout(1500)
def test_only_an_idle_cluster_pauses_itself(user: User, tmp_path: Path) -> None:
    deploy(user, tmp_path)
    worker = Faults.current().instances(BUSY)[2]
    Faults.current().node(worker).run("systemd-run", "--unit=sends", "python3", "-c", SENDS)
    busy, idle = members(BUSY), members(IDLE)
    assert len(busy) == len(idle) == NODES

    wait_s = (IDLE_STOP - ANNOUNCED).total_seconds() + LATE_S
    wait_until(lambda: status(user, IDLE)["idle_pauses_at"], "the announcement", timeout_s=wait_s, every_s=5.0)
    announced = status(user, IDLE)
    pauses_at = time_of(announced["idle_pauses_at"])
    assert pauses_at - time_of(announced["idle_since"]) >= IDLE_STOP - timedelta(seconds=1)
    assert members(IDLE) == idle
    wait_s = ANNOUNCED.total_seconds() + LATE_S
    wait_until(lambda: group_sizes(IDLE) == PAUSED, "the pause", timeout_s=wait_s, every_s=1.0)
    assert datetime.now(pauses_at.tzinfo) >= pauses_at
    wait_until(lambda: instance_states(idle) == {"terminated"}, "the end of all nodes", timeout_s=LATE_S, every_s=1.0)

    # It would have been announced and paused too by now.
    assert datetime.now(timezone.utc) - max(launch_times(busy)) > IDLE_STOP
    assert members(BUSY) == busy
    assert instance_states(busy) == {"running"}
    seen = status(user, BUSY)
    assert (seen["idle_since"], seen["idle_pauses_at"]) == (None, None)
