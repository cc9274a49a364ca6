"""Test that a lost or failing rank ends or restarts the job, and that unusable settings are refused."""

import re
import secrets
import shlex

import pytest

from tests.frameworks.mxnet_cluster import WORKERS, MxnetCluster
from tests.frameworks.observed_job import TOKEN, kill
from tests.frameworks.training import (
    PYTHON,
    SHORT,
    TRAINER,
    TWO_SERVERS,
    Training,
    wait_for,
    wait_for_end,
)

STARTED, TRAINS, GOES_ON = (
    "",
    r"Epoch\[1\] Batch \[2\]",
    r"rank 0/2 resuming at epoch [12345] sample \d+, from the checkpoint",
)
"""Patterns of the log at which a process is killed; any earlier, the processes may not have connected."""


@pytest.mark.parametrize(
    ("framework", "launch", "options", "kills"),
    [
        (
            "mxnet",
            TWO_SERVERS,
            f"--kv-store dist_sync {SHORT}",
            [(STARTED, "DMLC_ROLE=scheduler"), (TRAINS, "DMLC_ROLE=server"), (GOES_ON, "DMLC_TASK_ID=1")],
        ),
        ("horovod", "--framework horovod -n 2", f"{SHORT} --batch-size 32", [(TRAINS, "HOROVOD_RANK=1")]),
    ],
)
def test_training_with_killed_processes_reaches_the_same_result(
    cluster: MxnetCluster,
    request: pytest.FixtureRequest,
    framework: str,
    launch: str,
    options: str,
    kills: list[tuple[str, str]],
) -> None:
    undisturbed: Training = request.getfixturevalue("dist_sync" if framework == "mxnet" else "horovod")
    token = secrets.token_hex(8)
    job = cluster.on_master(
        "mkdir -p trainer && cd trainer; export OMP_NUM_THREADS=1;"
        # A process that waits inside MXNet for a lost one does not react to TERM.
        f" launch --detach --grace 2 --max-restarts {len(kills)} --env {TOKEN}:{token}"
        f" {launch} python {TRAINER} --framework {framework} {options} --model-prefix killed-{framework}"
        " --checkpoint-seconds 0.5 --disp-batches 1 2>/dev/null"
    )
    for moment, victim in kills:
        wait_for(cluster, job, moment)
        kill(victim, f"{TOKEN}={token}")

    log = wait_for(cluster, job, r"Validation-accuracy=\S+ images/s")
    assert len(re.findall(GOES_ON, log)) == sum(moment != STARTED for moment, _ in kills), log
    assert len(re.findall(r"launch: restart \d of", log)) == len(kills), log
    last = max(undisturbed.digests)
    assert Training(output=log).digests[last] == undisturbed.digests[last], log
    wait_for_end(cluster, job)


@pytest.mark.parametrize(
    ("launch", "framework"),
    [("--framework mxnet -s 1 -n 2", "mxnet --kv-store dist_sync"), ("--framework horovod -n 2", "horovod")],
)
def test_finished_training_is_not_repeated_by_the_same_job(cluster: MxnetCluster, launch: str, framework: str) -> None:
    prefix = f"over-{framework.split()[0]}"
    # The last rank fails after the trainer has finished, as if it had been killed while exiting.
    script = (
        f"{PYTHON} {TRAINER} --framework {framework} --num-epochs 1 --model-prefix {prefix} && [ $0 != $(hostname) -o"
    )
    script = f'{script} "$TORCHELASTIC_RESTART_COUNT" != 0 ]'
    last = cluster.on(WORKERS[1], "hostname")
    output = cluster.on_master(
        f"mkdir -p trainer && cd trainer; export OMP_NUM_THREADS=1; launch --max-restarts 1 {launch}"
        f" bash -c {shlex.quote(script)} {last}; echo code $?"
    )
    assert output.count(" checkpoint=") == 1, output
    assert "training had completed before its job was restarted" in output
    assert output.splitlines()[-1] == "code 0", output


def test_horovod_ranks_meet_when_one_is_later_than_gloos_timeout(cluster: MxnetCluster) -> None:
    # It waits as if it were downloading its data; Gloo's own timeout is 30 s.
    script = f"[ $HOROVOD_RANK = 0 ] || sleep 35; exec {PYTHON} {TRAINER} --framework horovod --num-epochs 1"
    output = cluster.on_master(
        f"mkdir -p trainer && cd trainer; export OMP_NUM_THREADS=1; launch --framework horovod -n 2"
        f" bash -c {shlex.quote(script)}; echo code $?"
    )
    assert output.splitlines()[-1] == "code 0", output


@pytest.mark.parametrize(
    ("launch", "framework"),
    [("--framework mxnet -s 1", "mxnet --kv-store dist_sync"), ("--framework horovod", "horovod")],
)
def test_launch_ends_with_the_error_of_the_failed_rank(cluster: MxnetCluster, launch: str, framework: str) -> None:
    # A file is in place of the directory: MXNet would wait for the others before ending this process.
    cluster.on(WORKERS[2], "touch blocked")
    prefix = "--model-prefix /home/ubuntu/blocked/net"
    output = cluster.on_master(f"launch {launch} python {TRAINER} --framework {framework} {prefix}; echo code $?")
    assert re.search(r"rank 2/3 trainer: cannot write checkpoints to /home/ubuntu/blocked: File exists", output), output
    assert output.splitlines()[-1] == "code 1", output


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            f"launch -s 1 python {TRAINER}",
            "--framework torch needs `launch --framework torch`, "
            "got processes of `launch --framework mxnet` (DMLC_ROLE is worker)",
        ),
        (
            f"launch python {TRAINER} --framework mxnet",
            "--framework mxnet needs `launch --framework mxnet`, "
            "got processes of `launch --framework torch` (WORLD_SIZE is 3)",
        ),
        (
            f"launch -s 1 python {TRAINER} --framework mxnet --kv-store device",
            "--kv-store device is for one worker, got 3: use dist_sync for several",
        ),
        (
            f"{PYTHON} {TRAINER} --framework mxnet --kv-store dist_sync",
            "--kv-store dist_sync needs MXNet's servers, which `launch --framework mxnet` starts",
        ),
    ],
)
def test_different_frameworks_of_launcher_and_trainer_are_refused(
    cluster: MxnetCluster, command: str, reason: str
) -> None:
    output = cluster.on_master(f"{command}; echo code $?")
    assert f"trainer: {reason}\n" in output
    assert "Traceback" not in output
    assert output.splitlines()[-1] == "code 2", output
