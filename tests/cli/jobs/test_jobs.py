"""Test jobs against a master that answers what a test says."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import click
import pytest

from cli.cluster_context import ClusterContext
from cli.errors import EXIT_INTERRUPTED, EXIT_USAGE, ClusterError
from cli.files.upload import Upload
from cli.main import main
from cli.shared_options import Selection
from cli.sizes import question
from cli.ssh.remote import Connection, Output, ending_with_connection
from cli.verbs.jobs import run
from tests.cli.conftest import complaint

JOB = "20260101-000000-abcdef0"
SENT = Upload(name="my-job", files=3, size=30, sent_files=2, sent_size=20)


def record(state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    return {
        "version": 1, "id": JOB, "state": state, "command": ["python", "-u", "train.py"], "hosts": ["w1", "w2"],
        "engine": "torch", "cwd": "/home/ubuntu/my-job", "user": "ubuntu", "pid": 7, "start": "2026-01-01T00:00:00Z",
        "end": None if state == "RUNNING" else "2026-01-01T01:02:03Z", "exit_code": None, "reason": None,
        "detached": True, "later": "unknown here", **changes,
    }  # fmt: skip


class Master:
    """Answer lines by their beginning, and keep what was run."""

    def __init__(self) -> None:
        self.answers: dict[str, Output] = {}
        self.ran: list[str] = []
        self.on_stream: Callable[[], int] = lambda: 0

    def says(self, beginning: str, stdout: str = "", *, code: int = 0, stderr: str = "") -> None:
        self.answers[beginning] = Output(exit_code=code, stdout=stdout.encode(), stderr=stderr)

    def output(self, command: str, *, chunks: Iterable[bytes] = (), **_: object) -> Output:
        self.ran.append(command)
        return next(answer for beginning, answer in self.answers.items() if beginning in command)

    def stream(self, command: str, **_: object) -> int:
        self.ran.append(command)
        return self.on_stream()


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Master:
    made = Master()
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def connected(_: object) -> Iterator[tuple[ClusterContext, Connection]]:
        context = type("Context", (), {"cluster": type("Cluster", (), {"name": "demo"})})
        yield cast(ClusterContext, context), cast(Connection, made)

    for verb in ("run", "jobs", "logs", "stop"):
        monkeypatch.setattr(f"cli.verbs.jobs.{verb}.connect_to_master", connected)
    monkeypatch.setattr(run, "upload", lambda connection, directory, to, show: SENT)
    return made


def test_jobs_as_lines_and_as_json(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    long = record("FAILED", id="2", command=["/bin/bash", "-c", "x" * 70 + "\x1b[2J"], exit_code=3, reason="why")
    master.says("launch list --json", json.dumps([record("SUCCEEDED"), long]))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "JOB                      STATE      START                 TIME     NODES  BY  COMMAND",
        f"{JOB}  SUCCEEDED  2026-01-01T00:00:00Z  1:02:03  2      -   python -u train.py",
        f"2                        FAILED     2026-01-01T00:00:00Z  1:02:03  2      -   {'x' * 57}...",
    ]
    assert main(["jobs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["cluster"]) == (1, "demo")
    assert found["jobs"][0] == {
        "id": JOB, "state": "SUCCEEDED", "command": ["python", "-u", "train.py"], "nodes": ["w1", "w2"],
        "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:02:03Z", "exit_code": None, "reason": None,
        "restarts": 0, "place": None, "waiting": None, "durable": False, "local_checkpoints": False,
        "detached": True, "directory": "/home/ubuntu/my-job", "started_by": None,
    }  # fmt: skip
    assert (found["jobs"][1]["exit_code"], found["jobs"][1]["reason"]) == (3, "why")


def test_a_waiting_job_shows_its_place_and_what_it_waits_for(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "2nd in line, for 2 nodes (job 1 of ann\x1b has them)"
    master.says("launch list --json", json.dumps([record("WAITING", place=2, waiting=text)]))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{JOB} is waiting, {text.replace(chr(27), ' ')}"
    assert main(["jobs", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["jobs"][0]
    assert (job["state"], job["place"], job["waiting"]) == ("WAITING", 2, text)


def test_jobs_that_would_end_are_named_with_what_they_lose(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record(local_checkpoints=True), record(durable=True), record("WAITING"), record("FAILED")]
    master.says("launch list --json", json.dumps(records))
    monkeypatch.setattr(question, "find_selected_cluster", lambda selection: None)
    monkeypatch.setattr(question, "ssh_target", lambda context: None)
    monkeypatch.setattr(question, "connect", lambda target: nullcontext(master))
    question.warn_of_running_jobs(Selection())
    fates = [line.removeprefix(f"dlcluster: job {JOB} ") for line in capsys.readouterr().err.splitlines()]
    assert fates == [
        "runs and would end, and its checkpoints are on the nodes' disks alone: python -u train.py",
        "runs and would be interrupted until nodes are back: python -u train.py",
        "waits and would end: python -u train.py",
    ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("{", "the master's answer cannot be read as JSON: "),
        ("{}", "the launcher on the master did not return a list of jobs"),
        ('[{"id": 1}]', "the master has a job record that cannot be used: KeyError('state')"),
        (
            json.dumps([record(exit_code=float("inf"))]),
            "the master has a job record that cannot be used: OverflowError",
        ),
        ("[1]", "the master has a job record that cannot be used: "),
    ],
)
def test_fails_when_the_master_lists_no_jobs(
    master: Master, answer: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    master.says("launch list", answer)
    assert main(["jobs"]) == 1
    assert complaint(capsys).startswith(message)


def test_a_line_of_the_launchers_own_goes_on_as_ours(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.says("launch stop", code=2, stderr="noise\nlaunch: there is no job yet\n")
    assert main(["stop", "x"]) == EXIT_USAGE
    assert complaint(capsys) == "there is no job yet"


def test_stop_tells_how_the_job_ended(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.says(f"launch stop {JOB}", f"{JOB} CANCELLED\n")
    assert main(["stop", JOB]) == 0
    assert capsys.readouterr().out == f"{JOB} CANCELLED\n"
    master.says("launch stop", f"{JOB} CANCELLED\n")
    assert main(["stop", "--json"]) == 0
    assert master.ran[-1] == "launch stop"
    assert json.loads(capsys.readouterr().out) == {"version": 1, "cluster": "demo", "job": JOB, "state": "CANCELLED"}


def test_logs_asks_the_launcher_for_what_is_wanted(master: Master) -> None:
    master.on_stream = lambda: 5
    assert main(["logs", "-f", "--rank", "3", JOB]) == 5
    assert f"launch logs -f --rank 3 {JOB} </dev/null" in master.ran[0]
    assert main(["logs"]) == 5
    assert "launch logs </dev/null" in master.ran[1]


def started(master: Master, *, end: dict[str, Any]) -> None:
    master.says("launch --detach", f"{JOB}\n", stderr=f"launch: follow it with: launch logs -f {JOB}\nlaunch: note\n")
    master.says("launch list --json", "[]")
    master.says("launch status", json.dumps(end))
    master.says("launch stop", f"{JOB} CANCELLED\n")


def test_run_brings_the_directory_starts_on_all_nodes_and_follows(
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


@pytest.mark.parametrize("words", [["train.py", "--json"], ["--no-sync", "train.py", "--detach", "--help"]])
def test_what_follows_the_command_belongs_to_it(master: Master, words: list[str]) -> None:
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


def test_a_durable_job_and_one_that_waits_are_submitted(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    started(master, end=record("SUCCEEDED"))
    assert main(["run", "--durable", "--wait", "--wait-timeout", "7d", "--", "x"]) == 0
    start = next(line for line in master.ran if "launch --detach" in line)
    assert "launch --detach --sync-dst-dir my-job --wait-timeout 7d --durable --wait -- x" in start
    assert f"dlcluster: job {JOB} is submitted\n" in capfd.readouterr().err


def test_run_detached_prints_the_id_alone(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    started(master, end=record())
    assert main(["run", "--detach", "--", "x"]) == 0
    assert capsys.readouterr().out == f"{JOB}\n"
    assert main(["run", "--detach", "--json", "--", "x"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out == {"version": 1, "cluster": "demo", "job": JOB, "directory": "~/my-job"}


def test_fails_when_the_job_does_not_start(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.says("launch --detach", code=1, stderr="launch: GPU 0 of w1 is in use\n")
    assert main(["run", "--no-sync", "--", "x"]) == 1
    assert complaint(capsys) == "the job did not start: GPU 0 of w1 is in use"
    master.says("launch --detach", "no id\n")
    assert main(["run", "--no-sync", "--", "x"]) == 1
    assert complaint(capsys) == "the launcher on the master must return a job id, got 'no id'"


def test_warns_of_a_job_in_the_directory_that_changes(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    started(master, end=record())
    elsewhere = record(id="2", cwd="/home/ubuntu/other")
    master.says("launch list --json", json.dumps([record("SUCCEEDED", id="1"), elsewhere, record()]))
    assert main(["run", "--detach", "--", "x"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if " runs in " in line]
    assert warnings == [f"dlcluster: job {JOB} runs in ~/my-job and sees what changes"]


def test_fails_when_a_name_is_given_for_nothing(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--no-sync", "--to", "x", "--", "true"]) == EXIT_USAGE
    assert complaint(capsys) == "--to is for what is sent, and --no-sync sends nothing"


def test_fails_when_the_script_is_not_in_the_directory(
    master: Master, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--", "trian.py"]) == EXIT_USAGE
    assert complaint(capsys) == f"{tmp_path} has no 'trian.py': did you mean train.py?"
    assert master.ran == []


def interrupted() -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("answer", "stops"), [(True, False), (False, True), (click.Abort(), False), (None, True)],
    ids=["leave it", "stop it", "Ctrl-C again", "no terminal"],
)  # fmt: skip
def test_ctrl_c_asks_once_whether_the_job_may_go_on(
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
    assert asked == ([] if answer is None else [f"\nleave job {JOB} running (Ctrl-C: yes)?"])
    assert (f"launch stop {JOB}" in master.ran) == stops
    said = "is stopped" if stops else f"keeps running: dlcluster logs -f {JOB}, dlcluster stop {JOB}"
    assert capfd.readouterr().err.endswith(f"dlcluster: job {JOB} {said}\n")


def test_a_lost_connection_says_that_the_job_goes_on(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    started(master, end=record())
    master.says("launch status", code=1, stderr="gone")
    assert main(["run", "--no-sync", "--", "x"]) == 1
    assert capfd.readouterr().err.endswith(f"dlcluster: gone; job {JOB} keeps running: dlcluster logs -f {JOB}\n")


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_is_followed_ends_with_the_connection_and_keeps_its_exit_code(shell: str) -> None:
    from cli.ssh.remote import ending_with_connection

    def start(*words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([shell, "-c", ending_with_connection(words)], stdin=subprocess.PIPE)

    with start("sh", "-c", "exit 7") as ends:
        assert ends.wait(10) == 7
        assert ends.stdin is not None
        ends.stdin.close()
    with start("sleep", "60") as follows:
        assert follows.stdin is not None
        follows.stdin.close()
        assert follows.wait(10) == 128 + 15


def test_an_error_cannot_steer_the_terminal(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str, **__: object) -> Output:
        raise ClusterError("cannot write out/\x1b[2J")

    monkeypatch.setattr(master, "output", fail)
    assert main(["jobs"]) == 1
    assert complaint(capsys) == "cannot write out/ [2J"


def test_ctrl_c_at_the_start_says_that_it_is_stopped(
    master: Master, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(master, "output", lambda command, **_: interrupted())
    assert main(["run", "--detach", "--no-sync", "--", "x"]) == EXIT_INTERRUPTED
    said = "dlcluster: the job's start is stopped; dlcluster jobs shows how it ended"
    assert capfd.readouterr().err.strip() == said


def test_a_start_ends_with_its_connection(tmp_path: Path) -> None:
    launch = tmp_path / "launch"
    launch.write_text(f"#!/bin/sh\ntrap 'kill $!; echo ended > {tmp_path}/end; exit 143' TERM\nsleep 60 & echo; wait\n")
    launch.chmod(0o755)
    line = ending_with_connection(["launch", "--detach"])
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash", "-c", line], env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(10) == 143
    assert (tmp_path / "end").read_text() == "ended\n"
