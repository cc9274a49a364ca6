"""Test a run against a master whose answers the test defines."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.contract import VERSION
from cli.jobs import start as start_module
from cli.main import main
from tests.cli.jobs.master import JOB, SENT, Master, record, set_job_answers
from tests.cli.moto_cluster import error_line


def test_run_sends_the_directory_starts_the_job_and_follows_it(
    master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record("SUCCEEDED", exit_code=0))
    assert (
        main(
            ["run", "--nnodes", "2", "--max-restarts", "3", "--sync-overwrite", "--", "train.py", "--lr", "0.1", "a b"]
        )
        == 0
    )
    _, start, logs, _ = master.ran
    line = "launch --detach --sync-dst-dir my-job -n 2 --max-restarts 3 --sync-overwrite -- train.py --lr 0.1 'a b'"
    assert start.startswith("cd && cd .cache/deeplearning/push/my-job && { exec 3<&0; ")
    assert f" {line} </dev/null" in start
    assert f"launch logs -f {JOB}" in logs
    assert capfd.readouterr().err.splitlines() == [
        "dlcluster: sent 2 of 3 files, 20 bytes, to the master",
        "launch: note",
        f"dlcluster: job {JOB} runs",
        f"dlcluster: job {JOB} SUCCEEDED",
    ]


def test_run_names_the_checkouts_below_a_directory_that_is_none(
    master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record("SUCCEEDED", exit_code=0))
    for name in ("a", "b", ".hidden", "none"):
        Path(name, "sub" if name == "none" else ".git").mkdir(parents=True)
    note = f"dlcluster: {Path.cwd()} contains other git checkouts: a, b; to send one alone, change to its directory"
    assert main(["run", "--", "train.py"]) == 0
    assert capfd.readouterr().err.splitlines()[:2] == [note, "dlcluster: sent 2 of 3 files, 20 bytes, to the master"]
    Path(".git").mkdir()
    assert main(["run", "--", "train.py"]) == 0
    assert "checkouts" not in capfd.readouterr().err


def test_run_says_that_releases_differ_and_starts_the_job(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    set_job_answers(master, end=record("SUCCEEDED", exit_code=0))
    master.release = f"{VERSION}:fedcba987654"
    assert main(["run", "--", "train.py"]) == 0
    line, *others = capfd.readouterr().err.splitlines()
    nodes = f"master, worker2, worker3 {VERSION} (0123456789ab)"
    said = f"dlcluster {VERSION}, stack {VERSION} (fedcba987654), {nodes}: dlcluster pause and resume replace the nodes"
    assert line == f"dlcluster: releases differ: {said}"
    assert f"dlcluster: job {JOB} SUCCEEDED" in others


@pytest.mark.parametrize("words", [["train.py", "--json"], ["--no-sync", "train.py", "--detach", "--help"]])
def test_options_after_the_command_are_passed_to_it(master: Master, words: list[str]) -> None:
    set_job_answers(master, end=record("SUCCEEDED"))
    assert main(["run", *words]) == 0
    start = next(line for line in master.ran if "launch --detach" in line)
    assert f"-- {shlex.join(word for word in words if word != '--no-sync')} </dev/null" in start
    assert ("--sync-dst-dir" in start) == ("--no-sync" not in words)


@pytest.mark.parametrize(
    ("end", "code"),
    [({"exit_code": 3}, 3), ({"exit_code": None}, 1), ({"exit_code": 256}, 255), ({"exit_code": -256}, 1)],
)
def test_run_returns_the_jobs_exit_code(
    master: Master, end: dict[str, Any], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record("FAILED", reason="w1: rank 0 ended\x1b", **end))
    assert main(["run", "--", "x"]) == code
    assert capfd.readouterr().err.endswith(f"dlcluster: job {JOB} FAILED: w1: rank 0 ended \n")


@pytest.mark.parametrize(
    ("reason", "rank", "shown", "advice"),
    [
        (
            "deeplearning-worker2: rank 1 ended with exit code 1: no module timm",
            1,
            "deeplearning-worker2: rank 1 ended with exit code 1: no module timm",
            f"dlcluster: all output of that rank: dlcluster logs {JOB} --rank 1\n",
        ),
        ("deeplearning-worker2: lost: no answer", None, "deeplearning-worker2: lost: no answer", ""),
        ("x: server 0 ended with exit code 1", None, "x: server 0 ended with exit code 1", ""),
        (
            "w1: rank 0 ended with exit code 126: if Python is to run ./a.py: launch python ./a.py",
            0,
            "w1: rank 0 ended with exit code 126: if Python is to run ./a.py: dlcluster run -- python ./a.py",
            f"dlcluster: all output of that rank: dlcluster logs {JOB} --rank 0\n",
        ),
        ("w1: no command lst, did you mean launch list?", None, "w1: no command lst, did you mean dlcluster jobs?", ""),
        ("w1: no command stp, did you mean launch stop?", None, "w1: no command stp, did you mean dlcluster stop?", ""),
    ],
)
def test_advice_after_a_failure_is_for_the_laptop(
    master: Master, reason: str, rank: int | None, shown: str, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record("FAILED", reason=reason, failed_rank=rank, exit_code=1))
    assert main(["run", "--", "x"]) == 1
    assert capfd.readouterr().err.endswith(f"dlcluster: job {JOB} FAILED: {shown}\n{advice}")


def test_durable_job_and_one_that_waits_are_submitted(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    set_job_answers(master, end=record("SUCCEEDED"))
    assert main(["run", "--durable", "--wait", "--wait-timeout", "7d", "--", "x"]) == 0
    start = next(line for line in master.ran if "launch --detach" in line)
    assert "launch --detach --sync-dst-dir my-job --wait-timeout 7d --durable --wait -- x" in start
    assert f"dlcluster: job {JOB} is submitted\n" in capfd.readouterr().err


def test_place_in_the_queue_is_printed_once(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    """The log of the job, which a run without --detach shows, begins with it."""
    set_job_answers(master, end=record("SUCCEEDED"))
    place = "launch: waiting, 1st in the queue, for 2 nodes (after job 1 of anna)\n"
    master.set_answer("launch --detach", f"{JOB}\n", stderr=f"{place}launch: note\n")
    assert main(["run", "--wait", "--", "x"]) == 0
    err = capfd.readouterr().err
    assert (place in err, "launch: note\n" in err) == (False, True)
    assert main(["run", "--wait", "--detach", "--", "x"]) == 0
    assert capfd.readouterr().err.count(place) == 1


def test_failed_launch_on_the_master_names_its_directory(
    master: Master, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.jobs.start.look_up_context", lambda selection: None)
    monkeypatch.setattr("cli.jobs.start.ssh_target", lambda context: None)
    monkeypatch.setattr("cli.jobs.start.run_command", lambda target, line, **_: 2 if "train.py" in line else 0)
    said = "dlcluster: launch ran in the master's home directory, and nothing was copied there\n"
    assert (main(["run", "--", "launch", "train.py"]), capfd.readouterr().err) == (2, said)
    assert (main(["run", "--", "launch", "list"]), capfd.readouterr().err) == (0, "")


def test_run_detached_prints_the_id_alone(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    set_job_answers(master, end=record())
    assert main(["run", "--detach", "--", "x"]) == 0
    assert capsys.readouterr().out == f"{JOB}\n"
    assert main(["run", "--detach", "--json", "--", "x"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out == {"version": 1, "cluster": "demo", "job": JOB, "directory": "~/my-job"}


def test_reason_of_a_job_that_does_not_start_is_printed(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.set_answer("launch --detach", code=1, stderr="launch: GPU 0 of w1 is in use\n")
    assert main(["run", "--no-sync", "--", "x"]) == 1
    assert error_line(capsys) == "the job did not start: GPU 0 of w1 is in use"
    master.set_answer("launch --detach", "no id\n")
    assert main(["run", "--no-sync", "--", "x"]) == 1
    assert error_line(capsys) == "the launcher on the master must return a job id, got 'no id'"


@pytest.mark.parametrize(("sent_files", "changed"), [(2, ", whose files have just changed,"), (0, "")])
def test_warns_in_one_line_of_open_jobs_in_the_sent_directory(
    master: Master, sent_files: int, changed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start_module, "upload", lambda *_, **__: replace(SENT, sent_files=sent_files))
    set_job_answers(master, end=record())
    elsewhere = record(id="2", cwd="/home/ubuntu/other")
    waiting = record("WAITING", id="3")
    master.set_answer("launch list --json", json.dumps([record("SUCCEEDED", id="1"), elsewhere, record(), waiting]))
    assert main(["run", "--detach", "--", "x"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "~/my-job" in line]
    jobs = f"job {JOB} (RUNNING), job 3 (WAITING)"
    files = "the new job may write the same files"
    assert warnings == [f"dlcluster: ~/my-job{changed} is the directory of {jobs}; {files}"]
