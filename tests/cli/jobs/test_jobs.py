"""Test jobs against a master whose answers the test defines."""

import json
import subprocess
from contextlib import nullcontext

import pytest

from cli.errors import EXIT_INTERRUPTED, EXIT_USAGE, ClusterError
from cli.main import main
from cli.node_groups import confirm
from cli.shared_options import Selection
from cli.ssh.master_connection import CommandResult, kill_on_disconnect
from tests.cli.jobs.master import JOB, Master, record
from tests.cli.moto_cluster import error_line


def test_jobs_as_lines_and_as_json(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    long = record("FAILED", id="2", command=["/bin/bash", "-c", "x" * 70 + "\x1b[2J"], exit_code=3, reason="why")
    master.set_answer("launch list --json", json.dumps([record("SUCCEEDED"), long]))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "JOB                      STATE      SUBMITTED             TIME     NODES  BY  COMMAND",
        f"{JOB}  SUCCEEDED  2026-01-01T00:00:00Z  1:02:03  2      -   python -u train.py",
        f"2                        FAILED     2026-01-01T00:00:00Z  1:02:03  2      -   {'x' * 57}...",
        "2 FAILED: why",
    ]
    assert main(["jobs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["cluster"]) == (1, "demo")
    assert found["jobs"][0] == {
        "id": JOB, "name": None, "state": "SUCCEEDED", "command": ["python", "-u", "train.py"], "nodes": ["w1", "w2"],
        "submitted_at": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:02:03Z", "exit_code": None, "reason": None,
        "failed_rank": None, "restarts": 0, "queue_position": None, "waiting": None, "durable": False,
        "local_checkpoints": False, "unknown_checkpoints": False,
        "detached": True, "directory": "/home/ubuntu/my-job", "started_by": None,
    }  # fmt: skip
    assert (found["jobs"][1]["exit_code"], found["jobs"][1]["reason"]) == (3, "why")


def test_job_of_a_push_is_shown_as_a_copy(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.set_answer("launch list --json", json.dumps([record("SUCCEEDED", command=["/bin/bash", "-c", "true"])]))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.endswith("  true (only copies files)\n")


def test_jobs_with_names_have_a_column_for_them(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [record("SUCCEEDED", name="base\x1bline"), record("FAILED", id="2")]
    master.set_answer("launch list --json", json.dumps(jobs))
    assert main(["jobs"]) == 0
    head, first, second, _ = capsys.readouterr().out.splitlines()
    assert head.endswith("BY  NAME       COMMAND")
    assert first.endswith("-   base line  python -u train.py")
    assert second.endswith("-   -          python -u train.py")
    assert main(["jobs", "--json"]) == 0
    assert [job["name"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["base\x1bline", None]


def test_reasons_of_the_failed_among_the_latest_jobs_are_below_the_table(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = {"1": "old", "2": None, "3": "w1: rank 0 ended\x1b" + "x" * 200, "4": "if so: launch python ./a.py"}
    failed = [record("FAILED", id=job, reason=reason, exit_code=3) for job, reason in reasons.items()]
    master.set_answer("launch list --json", json.dumps(failed))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[5:] == [
        "2 FAILED: exit code 3",
        f"3 FAILED: w1: rank 0 ended {'x' * 140}...",
        "4 FAILED: if so: dlcluster run -- python ./a.py",
    ]
    master.set_answer("launch list --json", json.dumps([*failed, record("SUCCEEDED"), record("CANCELLED", reason="c")]))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[7:] == []
    master.set_answer("launch list --json", json.dumps([record("SUCCEEDED"), *failed[-1:]]))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == ["4 FAILED: if so: dlcluster run -- python ./a.py"]


def test_restarts_are_shown_beside_the_state(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [record("SUCCEEDED", restarts=0), record("FAILED", restarts=1), record(restarts=2)]
    master.set_answer("launch list --json", json.dumps(jobs))
    assert main(["jobs"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:4]
    states = [row.removeprefix(JOB).partition("2026-")[0].strip() for row in rows]
    assert states == ["SUCCEEDED", "FAILED, 1 restart", "RUNNING, 2 restarts"]


def test_queued_job_shows_its_place_and_reason(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    text = "2nd in the queue, for 2 nodes (in use by job 1 of ann\x1b)"
    master.set_answer("launch list --json", json.dumps([record("WAITING", queue_position=2, waiting=text)]))
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{JOB} is waiting, {text.replace(chr(27), ' ')}"
    assert main(["jobs", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)["jobs"][0]
    assert (job["state"], job["queue_position"], job["waiting"]) == ("WAITING", 2, text)


def test_jobs_that_would_end_are_named_with_what_they_lose(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        record(local_checkpoints=True), record(durable=True), record(durable=True, unknown_checkpoints=True),
        record("WAITING"), record("FAILED"),
    ]  # fmt: skip
    master.set_answer("launch list --json", json.dumps(records))
    monkeypatch.setattr(confirm, "look_up_context", lambda selection: None)
    monkeypatch.setattr(confirm, "ssh_target", lambda context: None)
    monkeypatch.setattr(confirm, "open_connection", lambda target: nullcontext(master))
    confirm.warn_about_jobs_that_would_stop(Selection())
    fates = [line.removeprefix(f"dlcluster: job {JOB} ") for line in capsys.readouterr().err.splitlines()]
    assert fates == [
        "runs and would end, and its checkpoints are on the nodes' disks alone: python -u train.py",
        "runs and would be interrupted until nodes are back: python -u train.py",
        "runs and would be interrupted until nodes are back, and it is unknown whether its checkpoints are in S3 or "
        "the shared directory: python -u train.py",
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
def test_unusable_list_of_jobs_is_reported(
    master: Master, answer: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    master.set_answer("launch list", answer)
    assert main(["jobs"]) == 1
    assert error_line(capsys).startswith(message)


def test_launcher_error_is_printed_as_an_error_of_dlcluster(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.set_answer("launch stop", code=2, stderr="noise\nlaunch: there is no job yet\n")
    assert main(["stop", "x"]) == EXIT_USAGE
    assert error_line(capsys) == "there is no job yet"


def test_stop_prints_how_the_job_ended(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    master.set_answer(f"launch stop {JOB}", f"{JOB} CANCELLED\n")
    assert main(["stop", JOB]) == 0
    assert capsys.readouterr().out == f"{JOB} CANCELLED\n"
    master.set_answer("launch stop", f"{JOB} CANCELLED\n")
    assert main(["stop", "--json"]) == 0
    assert master.ran[-1] == "launch stop"
    assert json.loads(capsys.readouterr().out) == {"version": 1, "cluster": "demo", "job": JOB, "state": "CANCELLED"}


def test_logs_passes_its_options_to_the_launcher(master: Master) -> None:
    master.on_stream = lambda: 5
    master.set_answer("launch status", json.dumps(record()))
    assert main(["logs", "-f", "--rank", "3", "2026"]) == 5
    assert f"launch logs -f --rank 3 {JOB} </dev/null" in master.ran[-1]
    assert main(["logs"]) == 5
    assert "launch logs </dev/null" in master.ran[-1]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("launch: there is no job 2026999", "there is no job 2026999"),
        ("launch: error: did you mean launch list?\x1b[2J", "did you mean dlcluster jobs? [2J"),
        ("ssh: connect to host w2 port 22: refused", "ssh: connect to host w2 port 22: refused"),
    ],
)
def test_launchers_error_about_logs_is_dlclusters_own(
    master: Master, printed: str, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    master.on_stream = lambda: 2
    master.stream_errors = f"{printed}\n".encode()
    assert main(["logs", "2026999"]) == 2
    assert error_line(capfd) == shown


@pytest.mark.parametrize("words", [[], ["2026"]])
def test_followed_logs_end_with_the_final_state(
    master: Master, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    master.set_answer(" ".join(["launch status --json", *words]), json.dumps(record()))
    end = record("FAILED", reason="w1: rank 3 ended with exit code 1", failed_rank=3)
    master.set_answer(f"launch status --json {JOB}", json.dumps(end))
    # The latest job may be another by the end of this one, so the answer with the id counts.
    master.answers = dict(reversed(master.answers.items()))
    assert main(["logs", "-f", *words]) == 0
    state, output = capfd.readouterr().err.splitlines()
    assert state == f"dlcluster: job {JOB} FAILED: w1: rank 3 ended with exit code 1"
    assert output.endswith(f"dlcluster logs {JOB} --rank 3")
    assert main(["logs", JOB]) == 0
    assert capfd.readouterr().err == ""


def test_interrupted_display_says_that_the_job_goes_on(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    master.on_stream = interrupt
    master.set_answer("launch status", json.dumps(record()))
    assert main(["logs", "-f"]) == EXIT_INTERRUPTED
    assert error_line(capfd) == "the job keeps running; dlcluster stop ends it"
    assert main(["logs"]) == EXIT_INTERRUPTED
    assert capfd.readouterr().err.strip() == ""


def test_name_of_the_cluster_in_place_of_a_job_is_explained(master: Master, capfd: pytest.CaptureFixture[str]) -> None:
    master.set_answer("launch stop", code=2, stderr="launch: there is no job demo\n")
    assert main(["stop", "demo"]) == EXIT_USAGE
    advice = "dlcluster pause terminates its nodes, cdk destroy removes it"
    assert error_line(capfd) == f"there is no job demo; demo is a cluster: {advice}"
    master.set_answer("launch status", code=2, stderr="launch: there is no job demo\n")
    assert main(["logs", "-f", "demo"]) == EXIT_USAGE
    advice = "demo is a cluster: dlcluster logs --cluster demo shows its last job"
    assert error_line(capfd) == f"there is no job demo; {advice}"
    master.on_stream = lambda: 2
    assert main(["logs", "demo"]) == 2
    assert error_line(capfd) == "demo is a cluster: dlcluster logs --cluster demo shows its last job"
    master.on_stream = lambda: 0
    assert main(["logs", "demo"]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_followed_logs_keep_the_exit_code(shell: str) -> None:

    def start(*words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([shell, "-c", kill_on_disconnect(words)], stdin=subprocess.PIPE)

    with start("sh", "-c", "exit 7") as ends:
        assert ends.wait(50) == 7
        assert ends.stdin is not None
        ends.stdin.close()
    with start("sleep", "60") as follows:
        assert follows.stdin is not None
        follows.stdin.close()
        assert follows.wait(50) == 128 + 15


def test_error_cannot_steer_the_terminal(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str, **__: object) -> CommandResult:
        raise ClusterError("cannot write out/\x1b[2J")

    monkeypatch.setattr(master, "output", fail)
    assert main(["jobs"]) == 1
    assert error_line(capsys) == "cannot write out/ [2J"
