"""Test queued jobs; nodes are sshd on loopback, nvidia-smi is a stand-in."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.launcher.loopback_cluster import (
    ADDRESSES,
    LAUNCHER,
    LoopbackCluster,
    change_constants,
    copy_launcher,
    read_lines,
)

FIRST, SECOND, _ = ADDRESSES
SLEEP = "echo up; sleep 1000"


def jobs(cluster: LoopbackCluster) -> list[dict[str, Any]]:
    return list(json.loads(subcommand(cluster, "list", "--json")))


def subcommand(cluster: LoopbackCluster, *words: str) -> str:
    command = [sys.executable, str(LAUNCHER), *words]
    return subprocess.run(command, env=cluster.environment, capture_output=True, timeout=60, check=True).stdout.decode()


def wait_for_job(cluster: LoopbackCluster, index: int, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until a job, named by its index in the list, meets a condition; return it."""
    until = time.monotonic() + 60
    while True:
        found = jobs(cluster)
        if len(found) > index and condition(found[index]):
            return found[index]
        assert time.monotonic() < until, found
        time.sleep(0.1)


def wait_for_queue_positions(cluster: LoopbackCluster, *places: int) -> list[dict[str, Any]]:
    """Wait until the jobs after the first have these places in the queue, in any order; return them by place."""
    until = time.monotonic() + 60
    while True:
        found = sorted(jobs(cluster)[1:], key=lambda job: job["queue_position"] or 0)
        if [job["queue_position"] for job in found] == [*places]:
            return found
        assert time.monotonic() < until, found
        time.sleep(0.1)


def waits(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "WAITING")


def test_jobs_start_one_after_the_other_in_the_order_of_submission(cluster: LoopbackCluster) -> None:
    go, order = cluster.directory / "go", cluster.directory / "order"
    line = f"echo up; until [ -e {go} ]; do sleep 0.05; done"
    with cluster.start("-n", "2", line) as holder:
        read_lines(holder.stdout, 2)
        with cluster.start("--wait", "-n", "2", f"[ $RANK = 1 ] || echo large >> {order}; sleep 1") as large:
            wait_for_job(cluster, 1, waits)
            # It would fit on a node that the large one does not have yet, or only shares.
            with cluster.start("--wait", "-n", "1", f"echo small >> {order}") as small:
                third = wait_for_job(cluster, 2, waits)
                first, second = (job["id"] for job in jobs(cluster)[:2])
                user = third["user"]
                assert (third["queue_position"], third["waiting"]) == (
                    2,
                    f"2nd in the queue, for 1 node (in use by job {first} of {user})",
                )
                listed = subcommand(cluster, "list").splitlines()
                assert [text.split()[1] for text in listed if not text.startswith(" ")][1:] == [
                    "RUNNING",
                    "WAITING",
                    "WAITING",
                ]
                assert listed[3] == f"  waiting, 1st in the queue, for 2 nodes (in use by job {first} of {user})"
                refused = cluster.run("-n", "1", "true")
                assert (refused.code, refused.reason) == (
                    1,
                    f"launch: nothing started: job {second} of {user} is waiting for these nodes "
                    "(--wait queues the job behind it, --force starts anyway)",
                )
                go.touch()
                codes = [launcher.wait(60) for launcher in (holder, large, small)]
                assert codes == [0, 0, 0]
                assert small.stderr is not None
                output = small.stderr.read().decode()
    assert order.read_text() == "large\nsmall\n"
    assert output.startswith(f"launch: waiting, 2nd in the queue, for 1 node (in use by job {first} of {user})\n")
    ended = [(job["state"], job["queue_position"], job["waiting"]) for job in jobs(cluster)[:3]]
    assert ended == [("SUCCEEDED", None, None)] * 3


def test_queued_job_leaves_at_ctrl_c_stop_and_death(cluster: LoopbackCluster) -> None:
    with cluster.start("-n", "1", SLEEP) as holder:
        read_lines(holder.stdout, 1)
        wait = ("--wait", "-n", "1", "true")
        with cluster.start(*wait) as one, cluster.start(*wait) as two, cluster.start(*wait) as three:
            places = wait_for_queue_positions(cluster, 1, 2, 3)
            by_pid = {launcher.pid: launcher for launcher in (one, two, three)}
            by_pid[places[0]["pid"]].send_signal(signal.SIGINT)
            assert by_pid[places[0]["pid"]].wait(60) == 130
            by_pid[places[1]["pid"]].kill()
            by_pid[places[1]["pid"]].wait(60)
            last = [job["id"] for job in jobs(cluster)].index(places[2]["id"])
            wait_for_job(cluster, last, lambda job: job["queue_position"] == 1)
            assert subcommand(cluster, "stop", places[2]["id"]) == f"{places[2]['id']} CANCELLED\n"
            assert by_pid[places[2]["pid"]].wait(60) == 143
            states = {job["id"]: job["state"] for job in jobs(cluster)[1:]}
            assert [states[job["id"]] for job in places] == ["CANCELLED", "FAILED", "CANCELLED"]
        holder.terminate()
        holder.communicate(timeout=60)


def test_job_waits_for_another_users_process_and_ends_at_its_deadline(cluster: LoopbackCluster, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    busy.touch()
    smi = f"""[ -e {busy} ] || exit 0
case "$1" in --query-compute-apps=*) echo "GPU-a, 47, /bin/x" ;; *) echo "GPU-a, 0" ;; esac"""
    launcher = copy_launcher(tmp_path / "copy")
    change_constants(launcher, {"job_queue/queue_wait.RETRY_S": 0.5, "runner/gpu_usage.TIMEOUT_S": 60.0})
    environment = {"PATH": f"{cluster.write_program('nvidia-smi', smi).parent}:{cluster.environment['PATH']}"}
    short = LoopbackCluster(
        directory=cluster.directory, environment=cluster.environment | environment, launcher=launcher
    )
    ended = short.run("--wait", "--wait-timeout", "1", "-n", "1", "true")
    text = f"1st in the queue, for 1 node ({FIRST}: GPU 0 by process 47 (x))"
    assert (ended.code, ended.reason) == (1, f"launch: not started within 1 s (--wait-timeout): {text}")
    with short.start("--wait", "-n", "1", "echo up") as waiting:
        wait_for_job(cluster, 1, waits)
        busy.unlink()
        stdout, stderr = waiting.communicate(timeout=60)
    assert (waiting.returncode, stdout, stderr) == (
        0,
        f"{FIRST} [0] up\n".encode(),
        f"launch: waiting, {text}\n".encode(),
    )
