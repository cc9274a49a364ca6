"""Test that a command in a hint can be pasted: it repeats the cluster and the region of the line that printed it."""

import json
from datetime import datetime, timezone

import pytest

from cli.aws.scaling import ScalingGroups
from cli.errors import EXIT_FAILED, EXIT_INTERRUPTED
from cli.main import main
from tests.cli.jobs.master import JOB, Master, record, set_job_answers
from tests.cli.moto_cluster import KEY, REGION, Deploy, error_line, put_members

CHOSEN = ("--cluster", "vision", "--region", REGION)
DLCLUSTER = f"dlcluster --cluster vision --region {REGION}"


@pytest.mark.parametrize(
    ("words", "dlcluster"),
    [
        (["run", "--detach", "--", "train.py"], "dlcluster"),
        (["--cluster", "vision", "run", "--detach", "--", "train.py"], "dlcluster --cluster vision"),
        (["run", "--cluster", "vision", "--region", REGION, "--detach", "--", "train.py"], DLCLUSTER),
    ],
)
def test_hint_after_a_detached_run_repeats_the_given_options(
    words: list[str], dlcluster: str, master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record())
    assert main(words) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"dlcluster: follow it with: {dlcluster} logs -f {JOB}"


@pytest.mark.parametrize(
    ("line", "counterpart"),
    [
        ("launch python x", "run -- python x"),
        ("launch --nproc-per-node 1 python x", "run --nproc-per-node 1 -- python x"),
    ],
)
def test_hint_after_a_failure_repeats_the_given_options(
    line: str, counterpart: str, master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record("FAILED", exit_code=1, failed_rank=2, reason=f"try {line}"))
    assert main([*CHOSEN, "run", "--", "train.py"]) == 1
    assert capfd.readouterr().err.splitlines()[-2:] == [
        f"dlcluster: job {JOB} FAILED: try {DLCLUSTER} {counterpart}",
        f"dlcluster: all output of that rank: {DLCLUSTER} logs {JOB} --rank 2",
    ]


def test_advice_to_stop_a_running_job_repeats_the_given_options(
    master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    master.on_stream = interrupt
    master.set_answer("launch status", json.dumps(record()))
    assert main([*CHOSEN, "logs", "-f"]) == EXIT_INTERRUPTED
    assert error_line(capfd) == f"the job keeps running; {DLCLUSTER} stop ends it"


def test_advice_to_resume_a_paused_cluster_repeats_the_given_options(
    deploy: Deploy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_cluster = deploy("vision")
    row = {"instance_id": moto_cluster.instance_ids[1], "address": "10.0.1.20", "node_type": "worker", "host_key": KEY}
    put_members(moto_cluster.table, [{"node_index": 2, **row}], desired_nodes=3)
    paused = ScalingGroups(names=("g",), instance_ids=(), desired=0, since=datetime.now(timezone.utc))
    monkeypatch.setattr("cli.node_groups.paused_error.find_groups", lambda *_: paused)
    assert main([*CHOSEN, "logs"]) == EXIT_FAILED
    assert error_line(capsys) == f"the cluster is paused: {DLCLUSTER} resume brings its nodes back"
