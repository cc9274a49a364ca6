"""Test the options of launch that run passes on, with launch's own parser."""

import dataclasses
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from cli.commands.jobs.run import command as run
from cli.errors import EXIT_USAGE, UsageError
from cli.jobs.launch_options import LaunchOptions
from cli.main import main
from launcher.options.parser import parse_options
from tests.cli.jobs.master import JOB, Master
from tests.cli.moto_cluster import error_line

OWN = {"detach", "sync", "to", "as_json"}
"""Options of run itself; every other one must be the launcher's."""
ALL = LaunchOptions(
    nnodes=2,
    nproc_per_node="1",
    env=("A=b:c", "B:d=e", "HERE"),
    secret=("C=ssm:/c",),
    venv="env",
    max_restarts=3,
    grace=300,
    wait=True,
    wait_timeout="2h",
    name="baseline",
)


def test_launch_takes_every_option_that_run_passes_on(tmp_path: Path) -> None:
    shown = [param for param in run.params if isinstance(param, click.Option) and param.expose_value]
    assert {option.name for option in shown} - OWN == {field.name for field in dataclasses.fields(LaunchOptions)}
    hosts = tmp_path / "hosts"
    hosts.write_text("one\ntwo\nthree\n")
    given = ["-H", str(hosts), *ALL.to_args(), "--sync-dst-dir", "code"]
    job = parse_options([*given, "--sync-overwrite", "--", "x.py"], environ={"HERE": "v"})
    assert [host.name for host in job.hosts] == ["one", "two"]
    assert job.environment == {"A": "b:c", "B": "d=e", "HERE": "v"}
    assert job.venv == str(Path.home() / "env")
    assert (job.secrets, job.restart_policy.max_restarts, job.name) == ({"C": "ssm:/c"}, 3, "baseline")
    assert job.grace_s == 300
    assert job.queue_policy is not None
    assert job.queue_policy.timeout_s == 7200
    assert parse_options(["-H", str(hosts), *LaunchOptions(force=True).to_args(), "x"], environ={}).force
    durable = LaunchOptions(durable=True, sync_overwrite=True).to_args()
    assert parse_options(["--launcher", "local", "--sync-dst-dir", "code", *durable, "x"], environ={}).durable


def test_venv_below_the_local_home_is_below_the_home_on_nodes(home: Path) -> None:
    assert LaunchOptions(venv=f"{home}/envs/vision").to_args() == ["--venv", "envs/vision"]
    assert LaunchOptions(venv="/opt/vision").to_args() == ["--venv", "/opt/vision"]


@pytest.mark.parametrize("spelling", ["-n", "--nnodes", "--num-workers", "--num_workers"])
@pytest.mark.parametrize("command", ["x", "torchrun --nnodes=9 -n 9"])
def test_launchers_message_about_the_number_of_nodes_has_the_users_spelling(
    spelling: str, command: str, master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    master.set_answer("launch --detach -n 5", "", code=2, stderr="launch: -n must be at most 2, got 5\n")
    assert main(["run", "--no-sync", "--detach", spelling, "5", "--", *command.split()]) == EXIT_USAGE
    assert error_line(capsys) == f"the job did not start: {spelling.replace('_', '-')} must be at most 2, got 5"


def test_options_may_have_underscores_as_torchruns_have(master: Master) -> None:
    master.set_answer("launch --detach", f"{JOB}\n")
    line = "--no_sync --detach --nproc_per_node 2 --max_restarts=3 --env A_B=c_d -- x --lr_decay 1"
    assert main(["run", *line.split()]) == 0
    [ran] = master.ran
    assert "launch --detach --nproc-per-node 2 --max-restarts 3 --env A_B:c_d -- x --lr_decay 1 <" in ran


def test_hidden_value_goes_to_the_master_as_input(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", " s3cret's")
    master.set_answer("launch --detach", f"{JOB}\n")
    assert main(["run", "--no-sync", "--detach", "--env", "LR=0.1", "--env", "TOKEN", "--", "x"]) == 0
    [line] = master.ran
    assert "s3cret" not in line
    assert shlex.join(["launch", "--detach", "--env", "LR:0.1", "--env", "TOKEN", "--", "x"]) in line
    assert master.inputs == [b" s3cret's\n"]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_hidden_value_reaches_the_launcher_unchanged(
    shell: str, master: Master, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    value = " s3cret's \\n$HOME"
    monkeypatch.setenv("TOKEN", value)
    master.set_answer("launch --detach", f"{JOB}\n")
    assert main(["run", "--no-sync", "--detach", "--env", "TOKEN", "--", "x"]) == 0
    launch = tmp_path / "launch"
    launch.write_text('#!/bin/sh\nprintf %s "$TOKEN"\n')
    launch.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    pipe = subprocess.PIPE
    with subprocess.Popen([shell, "-c", master.ran[0]], env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(master.inputs))
        process.stdin.flush()  # It stays open, as the connection does.
        assert process.wait(60) == 0
        assert process.stdout.read().decode() == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            LaunchOptions(env=("KEY",), durable=True),
            "--durable cannot store --env KEY, whose value only this shell has: give --env KEY=",
        ),
        (
            LaunchOptions(env=("PATH",)),
            "--env PATH would change the launcher's own shell on the master: give --env PATH=",
        ),
        (LaunchOptions(env=("LD_PRELOAD",)), "--env LD_PRELOAD would change the launcher's own shell"),
        (LaunchOptions(env=("KEY",)), "--env KEY passes on only one line, and the value of KEY has several"),
    ],
)
def test_hidden_value_that_cannot_be_passed_on_is_refused(options: LaunchOptions, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        options.check({"KEY": "a\nb"})
    assert str(raised.value).startswith(message)
