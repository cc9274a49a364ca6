"""Test that jobs survive lost nodes: a run resumes from its checkpoint, and jobs under random faults end or restart.

The random faults also affect the launcher's own node; `make soak` runs more of them, which also crash nodes. The tests
have their own local AWS.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from local.chaos.job_chaos import RECOVERY_TIMEOUT_S, run_cases
from local.chaos.observer import ClusterObserver
from local.faults import Faults
from tests.e2e.support.deployed_cluster import NODES, SHARED_CONNECTION, STACK, DeployedCluster

SEED, CASES = 26, 7
"""Seed for these cases: one worker freezes, another is disconnected, and the launcher's node restarts."""
TIMEOUT_S = 900
"""Deadline in seconds; a fault takes about a minute, and more on a busy machine."""
TRAINING = (
    "cd && launch --max-restarts 1 --min-nodes 2 --rejoin-timeout 0"
    " python /opt/deeplearning/trainer --kv-store dist_sync --num-epochs 10000 2>&1"
)
GPT2 = (
    "cd gpt2 && launch --max-restarts 1 --rejoin-timeout 300 --sync-dst-dir gpt2 gpt2.py --data . --layers 2 --heads 2"
    " --width 64 --length 32 --vocabulary 64 --batch-size 4 --total-batch 24 --warmup 5 --lr 0.01 --steps 400"
    " --save-every 20"
)
SILENT = "launch --detach -n 2 'sleep 60; echo spoke'"
"""Job that prints nothing for a minute; start it before any fault, so that no node is replaced while it runs."""


@pytest.fixture(scope="module", autouse=True)
def silent(cluster: DeployedCluster) -> str:
    """Start a job that prints nothing for a minute, beside the first test; return its id."""
    return cluster.on("deeplearning-master", SILENT)


@contextmanager
def session(cluster: DeployedCluster, command: str) -> Iterator[Iterator[str]]:
    """Yield the output lines of a command on the master, which ends with the block."""
    args = cluster.user.ssh_command("deeplearning-master", command)
    with subprocess.Popen(
        args, env=dict(cluster.user.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        finally:
            process.kill()


def lines_until(lines: Iterator[str], pattern: str) -> list[str]:
    """Return the lines up to the first that matches the pattern."""
    seen: list[str] = []
    for line in lines:
        seen.append(line)
        if re.search(pattern, line):
            return seen
    pytest.fail(f"the job ended before {pattern!r}:\n{''.join(seen)}")


@pytest.mark.timeout(TIMEOUT_S)
def test_spot_notice_reaches_every_rank_and_the_job_resumes_without_the_node(cluster: DeployedCluster) -> None:
    ClusterObserver.current(STACK, environment=cluster.user.environment).wait_for_agreement(RECOVERY_TIMEOUT_S)
    with session(cluster, TRAINING) as lines:
        lines_until(lines, r"rank 0/3 Epoch\[2\] ")
        Faults.current().spot_notice("worker3", seconds=60)
        seen = lines_until(lines, r"rank 1/2 Epoch\[\d+\] weights=")
    text = "".join(seen)
    stopped = re.findall(r"rank (\d)/3 stopped by (?:SIGTERM|another rank's signal), with a checkpoint", text)
    assert sorted(stopped) == ["0", "1", "2"]
    assert "launch: deeplearning-worker3 is draining; waiting at most 0 s for 3 nodes" in text
    # An attempt this short counts against --max-restarts.
    assert "launch: restart 1 of 1 on 2 of 3 nodes: deeplearning-worker1, deeplearning-worker2" in text
    [epoch] = re.findall(r"rank 0/2 resuming at epoch (\d+) ", text)
    assert int(epoch) > 2


def test_silent_job_survives_a_minute(cluster: DeployedCluster, silent: str) -> None:
    output = cluster.on("deeplearning-master", f"timeout 300 launch logs -f {silent}")
    assert sorted(output.splitlines()) == [f"deeplearning-worker{node_index} [0] spoke" for node_index in (1, 2)]
    record = json.loads(cluster.on("deeplearning-master", f"launch status --json {silent}"))
    assert (record["state"], record["exit_code"]) == ("SUCCEEDED", 0)


@pytest.mark.timeout(TIMEOUT_S)
def test_jobs_end_or_restart_as_configured_after_node_faults(cluster: DeployedCluster) -> None:
    assert len(cluster.instances) == NODES
    errors = run_cases(STACK, user=cluster.user, seed=SEED, cases=CASES, log=lambda text: print(text, file=sys.stderr))
    assert errors == []


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT_S)
def test_gpt2_reaches_the_same_loss_after_a_node_is_lost(cluster: DeployedCluster, tmp_path: Path) -> None:
    observer = ClusterObserver.current(STACK, environment=cluster.user.environment)
    observer.wait_for_agreement(RECOVERY_TIMEOUT_S)
    tokens = np.cumsum(np.random.default_rng(0).integers(1, 4, 10_000)) % 64
    tokens.astype(np.uint16).tofile(tmp_path / "train.bin")
    script = Path(__file__).parents[3] / "examples/gpt2.py"
    shell = " ".join(cluster.user.ssh_command("", options=SHARED_CONNECTION)[:-1])
    cluster.user.run("rsync", "-a", "-e", shell, str(script), f"{tmp_path}/train.bin", "deeplearning-master:gpt2/")
    last = r"step 400 loss \S+"
    undisturbed = re.findall(last, cluster.on("deeplearning-master", f"{GPT2} --out ~/undisturbed 2>&1"))
    with session(cluster, f"{GPT2} --out ~/disturbed 2>&1") as lines:
        lines_until(lines, r" step 100 ")
        Faults.current().kill("worker3")
        seen = "".join(lines_until(lines, r" done: 400 steps"))
    assert f"launch: restart 1 of 1 on {NODES} nodes" in seen
    # The replacement has no file; the others have one after every 20 steps.
    assert int(re.findall(r"resuming after step (\d+) ", seen)[0]) >= 80
    assert re.findall(last, seen) == undisturbed
    observer.wait_for_agreement(RECOVERY_TIMEOUT_S)
