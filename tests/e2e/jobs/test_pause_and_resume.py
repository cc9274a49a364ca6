"""Test a pause: the nodes end, a deploy starts none, and the cluster returns under the same numbers.

A durable job then continues, on machines that have nothing of it.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from bootstrap.contract import EXPIRES_TAG, IDLE_STOP_TAG, LOG_FILE
from local.faults import Faults
from local.faults.clients import client
from tests.e2e.support.checkouts import deploy
from tests.e2e.support.deployed_cluster import NODES, DeployedCluster, aliases, stack_outputs
from tests.e2e.support.durable_training import CANNOT_TELL
from tests.e2e.support.group_states import PAUSED, fixed_size, group_sizes, members
from tests.waiting import wait_until

MASTER = "deeplearning-master"
CHECKPOINT = "s3://$DEEPLEARNING_BUCKET/of-the-durable-job"
SCRIPT = f"""\
[ "$RANK" = 0 ] || exit 0
if aws s3 cp --quiet {CHECKPOINT} - | grep -q saved; then echo "goes on, rate $RATE, of $WORLD_SIZE"; exit 0; fi
echo saved | aws s3 cp --quiet - {CHECKPOINT}
echo has saved
exec sleep 1000
"""
"""Training that saves once to the bucket, and ends when it is restarted."""
RESUME_S = 240.0
TIMEOUT_S = 1500
COMMAND_S = 600
TAGS = {"tags": "team=vision"}
"""A change that reaches both groups."""


def dlcluster(cluster: DeployedCluster, *args: str) -> str:
    done = subprocess.run(
        ["dlcluster", *args], env=dict(cluster.user.environment), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def submit(cluster: DeployedCluster) -> str:
    """Start a durable job from a directory that only the master has; return its id once it has saved."""
    files = f"mkdir -p code && cd code && cat > job.sh <<'END'\n{SCRIPT}END\n"
    line = f"{files}SEED=1 launch --durable --sync-dst-dir work --env RATE:0.1 sh job.sh 2>&1"
    *notes, hint, job = cluster.user.ssh(MASTER, line).splitlines()
    assert hint == f"launch: follow it with: launch logs -f {job}"
    lost, unknown = notes
    assert lost == "launch: later attempts lack: SEED of this shell; keep one by --env KEY=VALUE"
    assert unknown.startswith(f"launch: {CANNOT_TELL}: ")
    log = f"launch logs {job}"
    wait_until(lambda: "has saved" in cluster.user.ssh(MASTER, log), "a checkpoint", timeout_s=RESUME_S, every_s=0.5)
    return job


def check_durable(cluster: DeployedCluster, job: str) -> None:
    """Check that the job has continued without help, and that nothing remains to be started.

    A start that fails, as one may on new nodes that do not know the new master yet, is tried again: hence the least
    number of attempts.
    """

    def left() -> int:
        bucket, prefix = stack_outputs()["ClusterBucket"], "jobs/deeplearning/durable/"
        return int(client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)["KeyCount"])

    wait_until(lambda: left() == 0, "the durable job's end", timeout_s=RESUME_S, every_s=0.5)
    ended = json.loads(cluster.user.ssh(MASTER, f"launch status --json {job}"))
    assert (ended["state"], ended["exit_code"]) == ("SUCCEEDED", 0), ended
    assert ended["attempt"] >= 2, ended
    assert ended["hosts"] == aliases()
    printed = cluster.user.ssh(MASTER, f"launch logs {job}").splitlines()
    # An announced pause is added to the log, and withdrawn in it, at any time until the end of the job.
    own = [line for line in printed if not line.startswith("launch: this cluster")]
    assert own[-1].endswith(f"[0] goes on, rate 0.1, of {NODES}"), printed


@contextmanager
def group_tags(**tags: str) -> Iterator[None]:
    """Tag the master's group like a deploy with these settings, and do nothing else: no schedule ends the cluster."""
    name = stack_outputs()["MasterAutoScalingGroup"]
    filters: list[Any] = [
        {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": k, "Value": v, "PropagateAtLaunch": False}
        for k, v in tags.items()
    ]
    client("autoscaling").create_or_update_tags(Tags=filters)
    try:
        yield
    finally:
        client("autoscaling").delete_tags(Tags=filters)


@pytest.mark.timeout(TIMEOUT_S)
def test_paused_cluster_stays_paused_through_a_deploy_and_resumes(cluster: DeployedCluster) -> None:
    job = submit(cluster)
    before = members()
    terminated = json.loads(dlcluster(cluster, "pause", "--yes", "--json"))["terminated"]
    assert {*terminated} == before
    reservations = client("ec2").describe_instances(InstanceIds=terminated)["Reservations"]
    assert {i["State"]["Name"] for r in reservations for i in r["Instances"]} == {"terminated"}
    deploy(cluster, TAGS)
    assert (members(), group_sizes()) == (set(), PAUSED)
    end = datetime.now(timezone.utc) + timedelta(minutes=14)
    with group_tags(**{EXPIRES_TAG: f"{end:%Y-%m-%dT%H:%M:%SZ}", IDLE_STOP_TAG: "3600"}):
        nodes = json.loads(dlcluster(cluster, "resume", "--json"))["nodes"]
        log = Faults.current().node("master").path(LOG_FILE)
        # The agent follows the tags in each pass, so it has done so while the workers were starting.
        wait_until(lambda: f"pauses at {end:%H:%M} UTC" in log.read_text(), "the notice", timeout_s=RESUME_S)
        assert not re.findall(r"wall .*(?:failed|exited).*|load cannot be read.*", log.read_text())
    assert [node["index"] for node in nodes] == [*range(1, NODES + 1)]
    assert {node["instance_id"] for node in nodes} == members()
    assert group_sizes() == [fixed_size(1), fixed_size(NODES - 1)]
    check_durable(cluster, job)  # first: until it has ended, the nodes are its own, and launch refuses to share them
    output = dlcluster(cluster, "run", "--", "launch", "echo $DEEPLEARNING_INSTANCE_ID")
    expected = {f"{alias} [0] {node['instance_id']}" for alias, node in zip(aliases(), nodes, strict=True)}
    assert {*output.splitlines()} == expected
