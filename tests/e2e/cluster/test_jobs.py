"""Test that jobs outlive their session, and that ``pkill -f python`` on every host ends them, on real nodes."""

import json
import re
import subprocess
from typing import Any

import boto3
import pytest

from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster, aliases, stack_outputs
from tests.waiting import wait_until

MASTER = "deeplearning-master"
DETACH = "cd /tmp && SECRET=hunter2-of-the-shell launch --detach"
SLEEP = "import os, time; print('up', os.environ['RANK'], os.environ['SECRET'], flush=True); time.sleep(1000)"
# AWS's articles on deeplearning-cfn end jobs with this loop over all hosts (docs/from-deeplearning-cfn.md).
PKILL_ON_EVERY_HOST = 'while read -u 10 host; do ssh $host "pkill -f python"; done 10<$DEEPLEARNING_WORKERS_PATH'
AGENT = "systemctl show -p MainPID -p ActiveState --value deeplearning-agent | xargs"
FILES = ("/etc/hosts", "/opt/deeplearning/workers", "/etc/ssh/ssh_known_hosts", "/run/deeplearning/node.json")


def start(cluster: DeployedCluster) -> str:
    """Start a job from a session that then ends; return the job's id once all ranks have printed their line."""
    job = cluster.user.ssh(MASTER, f"{DETACH} --env SECRET python -c {json.dumps(SLEEP)}").strip()
    wait_until(
        lambda: cluster.on(MASTER, f"launch logs {job}").count(" up ") == NODES, "the ranks to be up", timeout_s=120
    )
    return job


def status(cluster: DeployedCluster, job: str) -> dict[str, Any]:
    return dict(json.loads(cluster.on(MASTER, f"launch status --json {job}")))


def ranks(cluster: DeployedCluster) -> list[int]:
    """Count a job's processes on each node."""
    # The brackets keep pgrep -f from finding the shell whose command line contains the pattern.
    return [int(cluster.on(alias, "pgrep -fc '[t]ime.sleep.1000' || true")) for alias in aliases()]


def wait_until_no_rank_is_left(cluster: DeployedCluster) -> None:
    """Wait until no node has a process of the job; a signal or a closed connection takes a moment to end them."""
    wait_until(lambda: ranks(cluster) == [0] * NODES, "the ranks to end", timeout_s=60)


def agents(cluster: DeployedCluster) -> list[str]:
    """Return the process id and state of each node's agent."""
    return [cluster.on(alias, AGENT) for alias in aliases()]


def files(cluster: DeployedCluster) -> list[str]:
    return [cluster.on(alias, f"cat {' '.join(FILES)} | sha256sum") for alias in aliases()]


def follow(cluster: DeployedCluster, job: str) -> str:
    """Return the job's output up to its end."""
    return cluster.on(MASTER, f"timeout 120 launch logs -f {job}")


def in_bucket(cluster: DeployedCluster, job: str) -> dict[str, Any]:
    key = f"jobs/{STACK}/{job}.json"
    body = boto3.client("s3").get_object(Bucket=stack_outputs()["ClusterBucket"], Key=key)["Body"].read()
    return dict(json.loads(body))


def test_detached_job_outlives_its_session_and_is_stopped(cluster: DeployedCluster) -> None:
    job = start(cluster)
    assert re.fullmatch(r"\d{8}-\d{6}-\w{7}", job)
    assert ranks(cluster) == [1] * NODES
    known = status(cluster, job)
    assert (known["state"], known["cwd"], known["detached"]) == ("RUNNING", "/tmp", True)
    assert known["hosts"] == aliases()
    assert cluster.on(MASTER, f"launch list | grep {job}").split()[1] == "RUNNING"
    # Its variables are in no process list, and systemd does not know them either.
    unit = f"deeplearning-job-{job}.service"
    assert "hunter2" not in cluster.on(MASTER, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "hunter2" not in cluster.on(MASTER, f"XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user show {unit}")
    assert cluster.on(MASTER, f"launch stop {job}") == f"{job} CANCELLED"
    assert ranks(cluster) == [0] * NODES
    output = sorted(line for line in follow(cluster, job).splitlines() if " up " in line)
    assert output == [f"{alias} [0] up {rank} hunter2-of-the-shell" for rank, alias in enumerate(aliases())]
    assert cluster.on(MASTER, f"launch logs --rank 2 {job}") == "up 2 hunter2-of-the-shell"
    kept = in_bucket(cluster, job)
    assert (kept["id"], kept["state"], kept["reason"]) == (job, "CANCELLED", "stopped by SIGTERM")
    assert "hunter2" not in json.dumps(kept)


def test_queued_job_waits_until_another_has_ended(cluster: DeployedCluster) -> None:
    first = start(cluster)
    waiting, hint, job = cluster.user.ssh(MASTER, "launch --detach --wait -n 1 echo two 2>&1").splitlines()
    known = status(cluster, first)
    owner = known["started_by"] or known["user"]
    assert waiting == f"launch: waiting, 1st in the queue, for 1 node (in use by job {first} of {owner})"
    assert hint == f"launch: follow it with: launch logs -f {job}"
    assert (status(cluster, job)["state"], status(cluster, job)["queue_position"]) == ("WAITING", 1)
    assert f"  {waiting.removeprefix('launch: ')}\n" in cluster.on(MASTER, "launch list") + "\n"
    assert cluster.on(MASTER, f"launch stop {first}") == f"{first} CANCELLED"
    assert follow(cluster, job).splitlines()[-1] == f"{aliases()[0]} [0] two"
    assert (status(cluster, job)["state"], status(cluster, job)["waiting"]) == ("SUCCEEDED", None)


def test_job_that_failed_is_in_the_bucket_with_its_reason(cluster: DeployedCluster) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        cluster.on(MASTER, "launch -n 1 'exit 3'")
    assert failure.value.returncode == 3
    job = json.loads(cluster.on(MASTER, "launch status --json"))
    assert (job["state"], job["exit_code"], job["detached"]) == ("FAILED", 3, False)
    assert in_bucket(cluster, job["id"]) == job


def test_detached_job_that_cannot_start_prints_the_reason(cluster: DeployedCluster) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        cluster.on(MASTER, "echo nobody > /tmp/hosts; launch --detach -H /tmp/hosts true 2>&1")
    assert failure.value.returncode == 1
    assert failure.value.stdout.startswith("launch: cannot reach 1 of 1 nodes, nothing started: nobody: ")


def test_job_whose_launcher_was_killed_is_failed_and_leaves_nothing(cluster: DeployedCluster) -> None:
    job = start(cluster)
    pid = status(cluster, job)["pid"]
    cluster.on(MASTER, f"kill -9 {pid}")
    # Wait until no part of the job runs on the master.
    follow(cluster, job)
    assert status(cluster, job)["state"] == "FAILED"
    wait_until_no_rank_is_left(cluster)


def test_pkill_on_every_host_ends_jobs_and_leaves_the_agents(cluster: DeployedCluster) -> None:
    before, written = agents(cluster), files(cluster)
    job = start(cluster)
    assert ranks(cluster) == [1] * NODES
    # Use a file: a shell with the loop in its command line would contain "python", and would end too.
    subprocess.run(
        cluster.user.ssh_command(MASTER, "cat > /tmp/end-jobs"),
        env=dict(cluster.user.environment),
        input=PKILL_ON_EVERY_HOST,
        text=True,
        check=True,
        timeout=60,
    )
    cluster.user.ssh(MASTER, "bash /tmp/end-jobs || true")
    follow(cluster, job)
    wait_until_no_rank_is_left(cluster)
    assert status(cluster, job)["state"] in ("FAILED", "CANCELLED")
    assert agents(cluster) == before
    assert all(agent.endswith(" active") for agent in before)
    assert files(cluster) == written


def test_agents_restart_after_pkill_by_root_and_repair_their_files(cluster: DeployedCluster) -> None:
    before, written = agents(cluster), files(cluster)
    for alias in aliases():
        cluster.on(alias, "sudo pkill -f '[b]ootstrap run'")
    for alias, pid in zip(aliases(), (agent.split()[0] for agent in before), strict=True):
        cluster.on(alias, f"for i in $(seq 300); do {AGENT} | grep -qx '{pid} active' || break; sleep 0.2; done")
        cluster.on(alias, f"for i in $(seq 300); do {AGENT} | grep -q ' active$' && exit; sleep 0.2; done; exit 1")
    # Each node numbers its own processes, so another node's agent may have the same number.
    assert not any(now == old for now, old in zip(agents(cluster), before, strict=True))
    assert files(cluster) == written


def test_two_jobs_of_one_node_each_run_on_different_nodes(cluster: DeployedCluster) -> None:
    started = [cluster.user.ssh(MASTER, "launch --detach --wait -n 1 sleep 1000").strip() for _ in range(2)]
    hosts = [status(cluster, job)["hosts"] for job in started]
    for job in started:
        assert cluster.on(MASTER, f"launch stop {job}") == f"{job} CANCELLED"
    assert hosts == [[alias] for alias in aliases()[:2]]
