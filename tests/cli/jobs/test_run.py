"""Test a run against a master whose answers the test defines."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from bootstrap.contract import VERSION
from cli.errors import EXIT_INTERRUPTED, EXIT_USAGE
from cli.jobs import start as start_module
from cli.main import main
from cli.ssh.master_connection import kill_on_disconnect
from tests.cli.fleet import error_line
from tests.cli.jobs.master import JOB, SENT, Master, record


def started(master: Master, *, end: dict[str, Any]) -> None:
    master.set_answer(
        "launch --detach", f"{JOB}\n", stderr=f"launch: follow it with: launch logs -f {JOB}\nlaunch: note\n"
    )
    master.set_answer("launch list --json", "[]")
    master.set_answer("launch status", json.dumps(end))
    master.set_answer("launch stop", f"{JOB} CANCELLED\n")


def test_run_sends_the_directory_starts_the_job_and_follows_it(
    master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    started(master, end=record("SUCCEEDED", exit_code=0))
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


def test_run_says_that_releases_differ_and_starts_the_job(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    started(master, end=record("SUCCEEDED", exit_code=0))
    master.release = f"{VERSION}:fedcba987654"
    assert main(["run", "--", "train.py"]) == 0
    line, *others = capfd.readouterr().err.splitlines()
    nodes = f"master, worker2, worker3 {VERSION} (0123456789ab)"
    said = f"dlcluster {VERSION}, stack {VERSION} (fedcba987654), {nodes}: dlcluster pause and resume replace the nodes"
    assert line == f"dlcluster: releases differ: {said}"
    assert f"dlcluster: job {JOB} SUCCEEDED" in others


@pytest.mark.parametrize("words", [["train.py", "--json"], ["--no-sync", "train.py", "--detach", "--help"]])
def test_options_after_the_command_are_passed_to_it(master: Master, words: list[str]) -> None:
    started(master, end=record("SUCCEEDED"))
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
    started(master, end=record("FAILED", reason="w1: rank 0 ended\x1b", **end))
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
    ],
)
def test_the_advice_after_a_failure_is_for_the_laptop(
    master: Master, reason: str, rank: int | None, shown: str, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    started(master, end=record("FAILED", reason=reason, failed_rank=rank, exit_code=1))
    assert main(["run", "--", "x"]) == 1
    assert capfd.readouterr().err.endswith(f"dlcluster: job {JOB} FAILED: {shown}\n{advice}")


def test_a_durable_job_and_one_that_waits_are_submitted(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    started(master, end=record("SUCCEEDED"))
    assert main(["run", "--durable", "--wait", "--wait-timeout", "7d", "--", "x"]) == 0
    start = next(line for line in master.ran if "launch --detach" in line)
    assert "launch --detach --sync-dst-dir my-job --wait-timeout 7d --durable --wait -- x" in start
    assert f"dlcluster: job {JOB} is submitted\n" in capfd.readouterr().err


def test_job_name_is_checked_before_sending(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    started(master, end=record())
    assert main(["run", "--detach", "--name", "baseline-2", "--", "x"]) == 0
    assert any("launch --detach --sync-dst-dir my-job --name baseline-2 -- x" in line for line in master.ran)
    master.ran.clear()
    capfd.readouterr()
    assert main(["run", "--name", "7b", "--", "x"]) == EXIT_USAGE
    form = "a letter, then at most 39 letters, digits, dots, hyphens and underscores"
    assert (master.ran, capfd.readouterr().err) == ([], f"dlcluster: --name must be {form}, got '7b'\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["srun", "-N", "2", "train.py"],
            "no srun here: options go before the command, as in: dlcluster run -n 2 -- train.py",
        ),
        (["a.yaml"], "there are no task files, got 'a.yaml': name the command, as in: dlcluster run -- train.py"),
        (["job.sh"], "no program 'job.sh': did you mean bash job.sh?"),
        (
            ["deepspeed", "--num_gpus", "8", "train.py", "--lr", "0.1"],
            "no deepspeed here: dlcluster run starts a process for each GPU itself, as in: "
            "dlcluster run -- train.py --lr 0.1",
        ),
        (
            ["/usr/bin/mpirun", "-np", "4", "python", "train.py"],
            "no mpirun here: dlcluster run starts a process for each GPU itself, as in: "
            "dlcluster run -- python train.py; for Horovod: dlcluster push, then dlcluster run -- launch "
            "--launcher mpi ...",
        ),
    ],
)
def test_slurm_command_task_file_or_missing_script_is_refused(
    master: Master, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.sh").touch()
    assert main(["run", "--", *words]) == EXIT_USAGE
    assert (error_line(capsys), master.ran) == (message, [])


@pytest.mark.parametrize("words", [["-n", "1", "deepspeed", "train.py"], ["accelerate", "test"], ["torchrun", "t.py"]])
def test_the_launcher_decides_about_other_starters(master: Master, words: list[str]) -> None:
    started(master, end=record())
    assert main(["run", "--detach", *words]) == 0


def test_the_launcher_decides_about_starters_on_a_cluster_of_one_node(master: Master) -> None:
    master.nodes = 1
    started(master, end=record())
    assert main(["run", "--detach", "deepspeed", "train.py"]) == 0


def test_script_outside_of_the_directory_is_refused(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path.cwd()
    for words in (["../other/t.py"], ["python", "-u", "sub/../../t.py"]):
        assert main(["run", "--", *words]) == EXIT_USAGE
        fix = "run dlcluster in the script's own directory"
        assert error_line(capsys) == f"{words[-1]!r} is outside of {here}, which is sent: {fix}"
    assert master.ran == []


@pytest.mark.parametrize(
    ("text", "words", "is_noted"),
    [
        ("import torch\n", ["train.py"], True),
        ("import torch\n", ["python", "train.py"], True),
        ("import torch\n", ["-n", "1", "train.py"], False),
        ("import torch\n", ["bash", "train.py"], False),
        ("import torch.distributed as dist\n", ["train.py"], False),
        ("from accelerate import Accelerator\n", ["train.py"], False),
        ('rank = os.environ["RANK"]\n', ["train.py"], False),
    ],
)
def test_independent_processes_are_noted(
    master: Master, capsys: pytest.CaptureFixture[str], text: str, words: list[str], is_noted: bool
) -> None:
    started(master, end=record())
    Path("train.py").write_text(text)
    assert main(["run", "--detach", *words]) == 0
    note = "dlcluster: note: 3 nodes run train.py, which does not mention torch.distributed: unless what it "
    assert (note in capsys.readouterr().err) == is_noted


def test_failed_launch_on_the_master_names_its_directory(
    master: Master, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.jobs.start.find_selected_cluster", lambda selection: None)
    monkeypatch.setattr("cli.jobs.start.ssh_target", lambda context: None)
    monkeypatch.setattr("cli.jobs.start.run_command", lambda target, line, **_: 2 if "train.py" in line else 0)
    said = "dlcluster: launch ran in the master's home directory, and nothing was copied there\n"
    assert (main(["run", "--", "launch", "train.py"]), capfd.readouterr().err) == (2, said)
    assert (main(["run", "--", "launch", "list"]), capfd.readouterr().err) == (0, "")


def test_run_detached_prints_the_id_alone(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    started(master, end=record())
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


@pytest.mark.parametrize(("sent_files", "changed"), [(2, ", whose files have just changed"), (0, "")])
def test_warns_when_a_running_job_uses_the_sent_directory(
    master: Master, sent_files: int, changed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start_module, "upload", lambda *_, **__: replace(SENT, sent_files=sent_files))
    started(master, end=record())
    elsewhere = record(id="2", cwd="/home/ubuntu/other")
    master.set_answer("launch list --json", json.dumps([record("SUCCEEDED", id="1"), elsewhere, record()]))
    assert main(["run", "--detach", "--", "x"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if " runs in " in line]
    assert warnings == [f"dlcluster: job {JOB} runs in ~/my-job{changed}; both jobs may write the same files"]


def test_option_to_without_sync_is_refused(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--no-sync", "--to", "x", "--", "true"]) == EXIT_USAGE
    assert error_line(capsys) == "--to cannot be combined with --no-sync, which sends nothing"


def test_missing_script_is_reported_before_anything_runs(
    master: Master, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--", "trian.py"]) == EXIT_USAGE
    assert error_line(capsys) == f"{tmp_path} has no 'trian.py': did you mean train.py?"
    assert master.ran == []


def interrupted() -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("answer", "stops"), [(True, False), (False, True), (click.Abort(), False), (None, True)],
    ids=["leave it", "stop it", "Ctrl-C again", "no terminal"],
)  # fmt: skip
def test_ctrl_c_asks_once_whether_to_leave_the_job_running(
    master: Master, monkeypatch: pytest.MonkeyPatch, answer: object, stops: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: object) -> object:
        asked.append(text)
        if isinstance(answer, Exception):
            raise answer
        return answer

    started(master, end=record())
    master.on_stream = interrupted
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: answer is not None)
    assert main(["run", "--", "x"]) == EXIT_INTERRUPTED
    assert asked == ([] if answer is None else [f"\nleave job {JOB} running (Enter or Ctrl-C: yes)?"])
    assert (f"launch stop {JOB}" in master.ran) == stops
    printed = "is stopped" if stops else f"keeps running: dlcluster logs -f {JOB}, dlcluster stop {JOB}"
    assert capfd.readouterr().err.endswith(f"dlcluster: job {JOB} {printed}\n")


def test_a_lost_connection_is_reported_with_the_job_still_running(
    master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    started(master, end=record())
    master.set_answer("launch status", code=1, stderr="gone")
    assert main(["run", "--no-sync", "--", "x"]) == 1
    assert capfd.readouterr().err.endswith(f"dlcluster: gone; job {JOB} keeps running: dlcluster logs -f {JOB}\n")


def test_ctrl_c_cancels_the_start(
    master: Master, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(master, "output", lambda command, **_: interrupted())
    assert main(["run", "--detach", "--no-sync", "--", "x"]) == EXIT_INTERRUPTED
    printed = "dlcluster: the start was cancelled; dlcluster jobs shows how it ended"
    assert capfd.readouterr().err.strip() == printed


def test_lost_connection_ends_a_job_that_is_starting(tmp_path: Path) -> None:
    launch = tmp_path / "launch"
    launch.write_text(f"#!/bin/sh\ntrap 'kill $!; echo ended > {tmp_path}/end; exit 143' TERM\nsleep 60 & echo; wait\n")
    launch.chmod(0o755)
    line = kill_on_disconnect(["launch", "--detach"])
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash", "-c", line], env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(50) == 143
    assert (tmp_path / "end").read_text() == "ended\n"
