"""Test what pause, resume and resize print and refuse, and that they complete an earlier call that was killed."""

import functools
import inspect
import itertools
import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.client import BaseClient

from bootstrap.aws.group_sizes import PAUSED, GroupSize
from bootstrap.contract import MASTER, WORKER
from cli.aws.scaling import Activity
from cli.cdk import settings_file
from cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from cli.main import main
from cli.node_groups.waiting import still_starting
from stacks.settings.nodes import declared_sizes
from tests.cli.moto_cluster import error_line
from tests.cli.node_groups.nodeless_cluster import CDK_JSON, DECLARED, STATES, NodelessCluster, hold, in_state

THREE = declared_sizes(worker_count=3, needed_workers=3)
COMMANDS: dict[str, tuple[list[str], dict[Any, GroupSize]]] = {
    "pause": (["pause", "--yes"], {MASTER: PAUSED, WORKER: PAUSED}),
    "resume": (["resume"], {**DECLARED}),
    "resize": (["resize", "3", "--yes"], {**THREE}),
    "resize of a paused cluster": (["resize", "3", "--yes"], {**THREE}),
}
"""Words of each command, and the sizes that it leaves."""
OF_PAUSED = ("resume", "resize of a paused cluster")
CALL = "_make_api_call"
KILL_POINTS = range(20)
"""Points at which a command is killed: before and after each of its steps. Some commands have fewer."""
Call = Callable[..., Any]


class Killer:
    """Kills a command at one point: before or after one of its calls of AWS, its write of cdk.json, or its cdk."""

    def __init__(self, point: int) -> None:
        self._point, self._steps = point, 0
        self.killed = False

    def around(self, step: Call) -> Call:
        """Return the step with its two points."""

        @functools.wraps(step)
        def run(*words: Any, **kwargs: Any) -> Any:
            mine, self._steps = self._steps == self._point // 2, self._steps + 1
            if mine and self._point % 2 == 0:
                self._kill()
            answer = step(*words, **kwargs)
            if mine:
                self._kill()
            return answer

        return run

    def _kill(self) -> None:
        self.killed = True
        raise KeyboardInterrupt


@pytest.mark.parametrize("command", COMMANDS)
def test_rerun_completes_a_killed_command(
    deployed: NodelessCluster, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, expected = COMMANDS[command]
    killed = 0
    for point in KILL_POINTS:
        deployed.update(DECLARED, user_data=str(point))
        deployed.set_sizes_directly(STATES["paused"] if command in OF_PAUSED else DECLARED)
        killer = Killer(point)
        with monkeypatch.context() as patch:
            patch.setattr(BaseClient, CALL, killer.around(getattr(BaseClient, CALL)))
            patch.setattr(settings_file, "_replace", killer.around(settings_file._replace))
            # This step only reads, and its calls would use up the points.
            patch.setattr("cli.commands.cluster.pause.warn_about_jobs_that_would_stop", lambda selection: None)
            # The stand-in for the CDK calls AWS itself.
            patch.setattr("cli.cdk.deploy.subprocess.run", killer.around(_apart(patch, deployed.cdk)))
            code = main(words)
        killed += killer.killed
        assert code == (EXIT_INTERRUPTED if killer.killed else 0)
        assert main(words) == 0
        assert deployed.sizes() == expected
        assert [*map(len, deployed.instances().values())] == [size.desired_capacity for size in expected.values()]
        Path("cdk.json").write_text(CDK_JSON)
        if not killer.killed:
            break
    assert killed >= 10


def _apart(patch: pytest.MonkeyPatch, cdk: Call) -> Call:
    """Return the stand-in for the CDK, whose calls of AWS do not count."""
    plain = inspect.unwrap(getattr(BaseClient, CALL))

    def run(*words: Any, **kwargs: Any) -> Any:
        counted = getattr(BaseClient, CALL)
        patch.setattr(BaseClient, CALL, plain)
        try:
            return cdk(*words, **kwargs)
        finally:
            patch.setattr(BaseClient, CALL, counted)

    return run


def test_pause_prints_the_remaining_costs(deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    terminated = [name for ids in deployed.instances().values() for name in ids]
    assert main(["pause", "--yes", "--json"]) == 0
    output = capsys.readouterr()
    # No node answers here. A question would name the jobs, and so does --yes.
    assert "dlcluster: cannot determine which jobs run: " in output.err
    assert "dlcluster: demo in us-east-1: terminating all nodes (3)" in output.err.splitlines()
    assert json.loads(output.out) == {
        "version": 1, "cluster": "demo", "region": "us-east-1", "state": "paused", "terminated": terminated,
        # A NAT gateway, its address, and the master's: 0.045 + 2 x 0.005.
        "usd_per_hour": 0.055,
    }  # fmt: skip
    assert main(["pause", "--yes"]) == 0
    output = capsys.readouterr()
    assert output.out == "demo is paused\n"
    assert "dlcluster: it still costs 0.055 USD an hour, 40 a month (NAT gateway 0.045, public addresses 0.010)" in (
        output.err
    )


def test_resume_lists_the_nodes_under_their_numbers(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = deployed.instances()
    assert main(["pause", "--yes"]) == 0
    capsys.readouterr()
    assert main(["resume", "--json"]) == 0
    document, output = json.loads((out := capsys.readouterr()).out), out.err
    now = deployed.instances()
    expected = [{"index": n, "instance_id": name} for n, name in enumerate([*now["master"], *now["worker"]], 1)]
    assert document["nodes"] == expected
    assert {*now["master"], *now["worker"]}.isdisjoint({*before["master"], *before["worker"]})
    # Three nodes of c5.large with 120 GiB each, and what a paused cluster costs: 3 x (0.085 + 0.01315) + 0.055.
    assert document["usd_per_hour"] == pytest.approx(0.349, abs=0.001)
    assert "dlcluster: 3 nodes will cost 0.35 USD an hour (list prices of us-east-1, 2026-07-20)" in output
    assert "dlcluster: waiting for" in output


def test_no_question_without_a_terminal(deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["pause"], ["resize", "3"]):
        assert main(words) == EXIT_USAGE
        output = capsys.readouterr()
        assert output.err.splitlines()[-1] == "dlcluster: cannot prompt without a terminal: use --yes"
    assert deployed.sizes() == DECLARED
    assert json.loads(Path("cdk.json").read_text())["context"]["cluster"]["worker_count"] == 2


@pytest.mark.parametrize(("answer", "code"), [("n\n", EXIT_INTERRUPTED), ("y\n", 0)])
def test_pause_confirms_and_warns_that_running_jobs_are_unknown(
    deployed: NodelessCluster,
    answer: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("cli.node_groups.confirm.sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: answer.strip())
    assert main(["pause"]) == code
    assert "dlcluster: cannot determine which jobs run: " in capsys.readouterr().err
    assert deployed.sizes() == (DECLARED if code else {MASTER: PAUSED, WORKER: PAUSED})


def test_resume_fails_when_nodes_do_not_start(
    deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused")
    monkeypatch.setattr("cli.node_groups.waiting.time.sleep", lambda _: None)
    assert main(["resume", "--timeout", "0"]) == EXIT_FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("dlcluster: waited 0 s for 3 of 3 nodes to join the cluster: dlcluster why shows more")


def test_reason_of_a_failed_launch_is_printed_once(
    deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused")
    for name in deployed.names():
        deployed.autoscaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    tries = itertools.count()

    def answer(*_words: object, **_named: object) -> list[Activity]:
        return [
            Activity(
                time=datetime(2026, 1, 1, tzinfo=timezone.utc),
                group="demo-worker",
                description="Launching a new EC2 instance",
                status="Failed",
                reason=f"no capacity for i-{next(tries):017x}",
            )
        ]

    monkeypatch.setattr("cli.node_groups.waiting.read_activities", answer)
    slept = [0.0]
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept))
    monkeypatch.setattr("cli.node_groups.waiting.time", clock)
    assert main(["resume", "--timeout", "5"]) == EXIT_FAILED
    output = capsys.readouterr().err.splitlines()
    assert [line for line in output if "capacity" in line] == [
        "dlcluster: EC2 Auto Scaling: 2026-01-01 00:00:00 demo-worker: Launching a new EC2 instance, Failed: "
        "no capacity for i-00000000000000000"
    ]
    assert next(tries) > 1
    assert output[-1].endswith(f"dlcluster why shows more; {still_starting()}")


def test_ctrl_c_warns_that_nodes_keep_starting(
    deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    in_state(deployed, "paused")
    monkeypatch.setattr("cli.node_groups.waiting.time.sleep", interrupt)
    assert main(["resume"]) == EXIT_INTERRUPTED
    assert (
        capsys.readouterr().err.rstrip().splitlines()[-1] == f"dlcluster: not all nodes are ready; {still_starting()}"
    )


def test_pause_terminates_protected_and_standby_nodes(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    standby, protected = hold(deployed)
    assert main(["pause"]) == EXIT_USAGE
    output = capsys.readouterr().err.splitlines()
    assert output[:2] == [
        f"dlcluster: {standby} is in standby, and is terminated too",
        f"dlcluster: {protected} is protected from scale-in, and is terminated too",
    ]
    assert len(deployed.instances()[WORKER]) == 2
    assert main(["pause", "--yes"]) == 0
    assert deployed.instances() == {MASTER: [], WORKER: []}


def test_resume_waits_no_longer_for_a_node_whose_setup_failed(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused").setup_fails_on = WORKER
    assert main(["resume"]) == EXIT_FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "dlcluster: the setup of worker2 failed: dlcluster why shows its last lines"


def test_wait_ends_when_another_call_changes_the_sizes(
    deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused")
    monkeypatch.setattr("cli.node_groups.waiting.time.sleep", lambda _: deployed.set_sizes_directly({WORKER: PAUSED}))
    assert main(["resume"]) == EXIT_FAILED
    assert "somebody else has changed the sizes of demo: run dlcluster resume again" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["pause", "--yes"], ["resume"], ["resize", "3", "--yes"]])
def test_sizes_stay_while_cloudformation_changes_the_stack(
    deployed: NodelessCluster, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = getattr(BaseClient, CALL)

    def answer(self: Any, operation: str, parameters: Any) -> Any:
        found: dict[str, Any] = original(self, operation, parameters)
        for stack in found.get("Stacks", []):
            stack["StackStatus"] = "UPDATE_IN_PROGRESS"
        return found

    monkeypatch.setattr(BaseClient, CALL, answer)
    assert main(words) == EXIT_FAILED
    assert error_line(capsys) == ("stack demo is UPDATE_IN_PROGRESS: wait until CloudFormation has finished, try again")
    assert deployed.sizes() == DECLARED


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["resize", "3", "-c", "worker_count=4"], "-c worker_count cannot be combined with the argument"),
        (["resize", "501"], "worker_count must be 0 to 500, got 501"),
        (["resize", "3", "--cluster", "two"], "cdk.json is for cluster demo, not for --cluster two"),
    ],
)
@pytest.mark.usefixtures("deployed")
def test_contradictory_arguments_are_a_usage_error(
    words: list[str], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == EXIT_USAGE
    assert error_line(capsys).startswith(output)
