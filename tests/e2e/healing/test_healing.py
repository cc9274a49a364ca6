"""Test that the cluster recovers without help when nodes are lost."""

import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from cli.aws.nodes import NO_MASTER
from cli.errors import EXIT_FAILED
from local.chaos.membership_check import Observation
from local.chaos.observer import ClusterObserver
from local.faults import Faults
from local.faults.clients import client
from local.run.startup import REGION
from tests.cli.command_lines import ON_MASTER, prepare_command_line
from tests.e2e.support.command_answers import Prompt, enter_project
from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster, aliases, node_disk, stack_outputs
from tests.service_models import shared_models
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(1500)
HEAL_TIMEOUT_S = 240.0
LOGIN_TIMEOUT_S = 180
SAVING = "trap 'sleep 1; echo saved; exit' TERM; echo up; while :; do sleep 0.1; done"
"""Command of a rank that needs a moment for its checkpoint."""
AUTHORIZED_KEYS = "etc/deeplearning/authorized_keys/ubuntu"


@pytest.fixture
def observer(cluster: DeployedCluster) -> ClusterObserver:
    return ClusterObserver.current(STACK, environment=cluster.user.environment)


@pytest.fixture
def before(observer: ClusterObserver) -> Observation:
    return observer.wait_for_agreement(HEAL_TIMEOUT_S)


def wait_for_replacement(observer: ClusterObserver, before: Observation, node_index: int) -> Observation:
    """Wait until another instance has the index and all agree; check that the others have not moved."""
    wait_until(
        lambda: Faults.current().instances(STACK).get(node_index) not in (None, before.instances[node_index]),
        f"a replacement with index {node_index}",
        timeout_s=HEAL_TIMEOUT_S,
    )
    after = observer.wait_for_agreement(HEAL_TIMEOUT_S, previous=before)
    assert after.instances.keys() == before.instances.keys()
    changed = {index for index, instance_id in before.instances.items() if after.instances[index] != instance_id}
    assert changed == {node_index}
    assert after.generation > before.generation
    return after


def describe_instance(instance_id: str) -> Mapping[str, Any]:
    reservations = client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"]
    instance: Mapping[str, Any] = reservations[0]["Instances"][0]
    return instance


def public_address(instance_id: str) -> str:
    return str(describe_instance(instance_id).get("PublicIpAddress"))


def log_in(cluster: DeployedCluster, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        cluster.user.ssh_command(host, command, options=options),
        env=dict(cluster.user.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LOGIN_TIMEOUT_S,
    )


def authorized_key(instance_id: str) -> str:
    return (node_disk(instance_id) / AUTHORIZED_KEYS).read_text()


def workers_path(instance_id: str) -> Path:
    return node_disk(instance_id) / "opt/deeplearning/workers"


def terminated_at(instance_id: str) -> float:
    """Return when a group terminated an instance, in seconds since the epoch."""
    outputs, autoscaling = stack_outputs(), client("autoscaling")
    for group in (outputs["MasterAutoScalingGroup"], outputs["WorkerAutoScalingGroup"]):
        for activity in autoscaling.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]:
            if activity["Description"] == f"Terminating EC2 instance: {instance_id}":
                return float(activity["EndTime"].timestamp())
    raise LookupError(instance_id)


def state(instance_id: str) -> str:
    return str(describe_instance(instance_id)["State"]["Name"])


@contextmanager
def saving_job(cluster: DeployedCluster) -> Iterator["subprocess.Popen[str]"]:
    """Run a job whose ranks save a checkpoint at the end, on all nodes."""
    with subprocess.Popen(
        cluster.user.ssh_command("deeplearning-master", shlex.join(["launch", SAVING])),
        env=dict(cluster.user.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None
        try:
            assert sorted(job.stdout.readline() for _ in aliases()) == [f"{alias} [0] up\n" for alias in aliases()]
            yield job
        finally:
            job.kill()


@contextmanager
def no_launches(group: str) -> Iterator[None]:
    """Let a group launch nothing during the block, so that its lost node stays away."""
    autoscaling = client("autoscaling")
    autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])
    try:
        yield
    finally:
        autoscaling.resume_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])


def check_commands_without_master(prompt: Prompt, lost: str) -> None:
    """Check what each command says while the master is away: those that need it fail, with the reason."""
    for command in ON_MASTER:
        words = prepare_command_line(command, region=REGION, cluster=STACK)
        assert prompt.fails(words) == (EXIT_FAILED, f"{NO_MASTER} ({lost} is terminated)"), command
    status, text = prompt.json(["status"]), prompt.run(["status"]).out
    assert (status["running_nodes"], status["missing_nodes"]) == (NODES - 1, 1)
    assert [node["state"] for node in status["nodes"] if node["instance_id"] == lost] == ["terminated"]
    assert f"{STACK}: {NODES - 1} of {NODES} nodes" in text
    assert f"1 of {NODES} nodes missing" in text
    assert [cluster["desired_nodes"] for cluster in prompt.json(["list"])["clusters"]] == [NODES]
    assert prompt.json(["why"])["nodes"] == f"1 of {NODES} nodes missing"
    for command in ("cost", "policy", "known-hosts", "allow-ip", "delete-bucket", "delete-storage"):
        assert prompt.run([command]).code == 0, command
    paused = prompt.run(["pause"])
    assert (
        paused.err.splitlines()[0] == f"dlcluster: cannot determine which jobs run: {NO_MASTER} ({lost} is terminated)"
    )


def check_job_runs_on_all_nodes(cluster: DeployedCluster) -> None:
    """Run a job without agent forwarding, so that the nodes' own keys must open them to each other."""
    job = 'launch python -c \'import os; print(os.environ["RANK"], os.environ["WORLD_SIZE"])\''
    done = log_in(cluster, "deeplearning-master", job, "-a")
    assert done.returncode == 0, done.stderr
    ranks = [[str(rank), str(NODES)] for rank in range(NODES)]
    assert sorted(line.split()[-2:] for line in done.stdout.splitlines()) == ranks


def wait_for_logs(instances: set[str]) -> None:
    """Wait until the log group contains the logs of these instances' agents, in a stream each."""
    group = stack_outputs()["ClusterLogGroup"]

    def has_logs() -> bool:
        streams = boto3.client("logs").describe_log_streams(logGroupName=group)["logStreams"]
        return {stream["logStreamName"] for stream in streams} >= instances

    # A new node sends its first lines at the end of the pass in which it joins.
    wait_until(has_logs, f"the logs of {sorted(instances)}", timeout_s=HEAL_TIMEOUT_S)


def test_crashed_worker_is_replaced_under_its_index(
    cluster: DeployedCluster, observer: ClusterObserver, before: Observation
) -> None:
    Faults.current().kill("worker2")
    after = wait_for_replacement(observer, before, 2)
    # The ssh configuration is still the one written after the deploy.
    assert log_in(cluster, "deeplearning-worker2", "true").returncode == 0
    check_job_runs_on_all_nodes(cluster)
    # The logs of the lost node stay.
    wait_for_logs({*before.instances.values(), *after.instances.values()})


def test_crashed_master_is_replaced_behind_the_same_address(
    cluster: DeployedCluster,
    observer: ClusterObserver,
    before: Observation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address, key = public_address(before.instances[1]), authorized_key(before.instances[2])
    with no_launches(stack_outputs()["MasterAutoScalingGroup"]):
        Faults.current().kill("master")
        lost = before.instances[1]
        wait_until(lambda: state(lost) == "terminated", "EC2 to show the end of the master", timeout_s=HEAL_TIMEOUT_S)
        enter_project(cluster.user, tmp_path, monkeypatch)
        with shared_models():
            check_commands_without_master(Prompt(capture=capfd), lost)
    after = wait_for_replacement(observer, before, 1)
    # The new master takes the address right after it has written the files by which the nodes agree.
    wait_until(lambda: public_address(after.instances[1]) == address, "the address", timeout_s=HEAL_TIMEOUT_S)
    # The host key raises no alarm, and the new master's own key opens the workers without an agent.
    hop = "ssh -o BatchMode=yes deeplearning-worker3 hostname"
    done = log_in(cluster, "deeplearning-master", hop, "-a")
    assert (done.returncode, done.stderr) == (0, "")
    assert authorized_key(before.instances[2]) not in ("", key)
    check_job_runs_on_all_nodes(cluster)


@pytest.mark.parametrize("node_index", [3, 1])
def test_node_with_a_notice_leaves_the_lists_before_it_ends(
    cluster: DeployedCluster, observer: ClusterObserver, before: Observation, node_index: int
) -> None:
    # A node with a rebalance recommendation requests its replacement, and its group waits for it to leave.
    draining_instance, witness = before.instances[node_index], before.instances[2]

    Faults.current().rebalance_recommendation(draining_instance)
    wait_until(
        lambda: f"deeplearning-worker{node_index}\n" not in workers_path(witness).read_text(),
        "the draining node to leave the workers file",
        timeout_s=HEAL_TIMEOUT_S,
    )
    left_at = workers_path(witness).stat().st_mtime
    wait_for_replacement(observer, before, node_index)
    assert state(draining_instance) == "terminated"
    assert terminated_at(draining_instance) >= int(left_at)
    check_job_runs_on_all_nodes(cluster)


def test_scaled_in_survivors_close_the_gap(
    cluster: DeployedCluster, observer: ClusterObserver, before: Observation
) -> None:
    """When a worker with a low index is removed, the survivor with the highest index takes it; no other index changes.

    Before that, a job has time to save on all nodes.
    """
    workers = stack_outputs()["WorkerAutoScalingGroup"]
    autoscaling = boto3.client("autoscaling")
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=workers, MinSize=1)
    with saving_job(cluster) as job:
        autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=before.instances[2], ShouldDecrementDesiredCapacity=True
        )
        stdout, stderr = job.communicate(timeout=HEAL_TIMEOUT_S)
    assert sorted(stdout.splitlines()) == [f"{alias} [0] saved" for alias in aliases()]
    # Before that line, bash also reports which of its children TERM has ended.
    assert (job.returncode, stderr.splitlines()[-1]) == (1, "launch: deeplearning-worker2 is draining")
    expected = {1: before.instances[1], 2: before.instances[3]}
    wait_until(
        lambda: Faults.current().instances(STACK) == expected,
        "the survivor with the free index",
        timeout_s=HEAL_TIMEOUT_S,
    )
    assert observer.wait_for_agreement(HEAL_TIMEOUT_S).instances == expected
    # Not by a shared connection, which the next command would still use when a fault has ended this master.
    count = cluster.user.ssh("deeplearning-master", "env | grep ^DEEPLEARNING_WORKERS_COUNT=")
    assert count == "DEEPLEARNING_WORKERS_COUNT=2\n"
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=workers, MinSize=2, DesiredCapacity=2)
    wait_until(
        lambda: len(Faults.current().instances(STACK)) == 3,
        "the cluster to have three nodes again",
        timeout_s=HEAL_TIMEOUT_S,
    )
    observer.wait_for_agreement(HEAL_TIMEOUT_S)
    check_job_runs_on_all_nodes(cluster)
