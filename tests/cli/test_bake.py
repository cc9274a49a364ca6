"""Test when ``dlcluster bake`` refuses, the order of its steps, and what a kill at each step leaves."""

import errno
import io
import itertools
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from cli.aws.nodes import ClusterMembership, ClusterNode
from cli.errors import EXIT_FAILED, EXIT_USAGE, ClusterError
from cli.main import main
from tests.cli.bake_account import DONE, IMAGE, SHA256, Account, Killed, aws_error
from tests.cli.fleet import KEY

WORKER = "i-00000000000000003"
STEPS = ("detach", "mark", "leave", "clean", "create", "wait")


@pytest.fixture
def bake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Run the command in a directory with a cdk.json."""
    monkeypatch.chdir(tmp_path)
    Path("cdk.json").write_text(json.dumps({"context": {"cluster": {"cluster_name": "demo", "key_name": "me"}}}))

    def run(account: Account, *words: str, setup: str | None = f"s3://assets/a.zip {SHA256} 900") -> int:
        cluster = SimpleNamespace(name="demo", setup=setup, release=account.release, table="table", networks=())
        members = account.members or tuple(member(index) for index in (1, 2, 3))
        clients = SimpleNamespace(
            ec2=account, autoscaling=account, dynamodb=account, sts=account, cloudformation=None, region="eu-west-1"
        )
        membership = ClusterMembership(generation=1, desired_nodes=3, members=members)
        context: Any = SimpleNamespace(cluster=cluster, clients=clients, membership=membership)

        @contextmanager
        def connect_to_master(_selection: object) -> Iterator[Any]:
            yield context, account

        def read_membership(*_arguments: Any, **_named: Any) -> ClusterMembership:
            account.step("leave")
            left = tuple(each for each in members if each.instance_id not in account.detached)
            return ClusterMembership(generation=2, desired_nodes=3, members=left)

        monkeypatch.setattr("cli.commands.image.bake.connect_to_master", connect_to_master)
        monkeypatch.setattr("cli.image.worker.read_membership", read_membership)
        monkeypatch.setattr("cli.cluster_lock.find_cluster", lambda *_, **__: cluster)
        monkeypatch.setattr("cli.image.images.time.sleep", lambda _: None)
        return main(["bake", *words])

    return run


def member(index: int, *, setup: str = DONE, release: str = "") -> ClusterNode:
    return ClusterNode(
        node_index=index,
        instance_id=f"i-{index:017}",
        address=f"10.0.0.{index}",
        node_type="master" if index == 1 else "worker",
        host_key=KEY,
        setup=setup,
        release=release,
    )


def written() -> str | None:
    found: str | None = json.loads(Path("cdk.json").read_text())["context"]["cluster"].get("ami")
    return found


def test_the_newest_worker_becomes_the_image(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    account = Account()
    assert bake(account, "--yes", "--json") == 0
    assert account.did == [*STEPS, "wait", "end"]
    out, err = capsys.readouterr()
    assert json.loads(out) == {"version": 1, "cluster": "demo", "ami": IMAGE, "sha256": SHA256, "instance_id": WORKER}
    assert written() == IMAGE
    assert f"dlcluster: waiting for image {IMAGE}, 0 s so far\n" in err
    assert "to apply it, run: cdk deploy\n" in err
    assert f"aws ec2 deregister-image --delete-associated-snapshots --image-id {IMAGE}" in err


def test_the_worker_that_was_launched_last_becomes_the_image(bake: Callable[..., int]) -> None:
    account = Account(launched=(1, 9, 3))
    assert bake(account, "--yes") == 0
    assert account.detached == ["i-00000000000000002"]


def test_the_image_is_of_the_root_disk_only(bake: Callable[..., int]) -> None:
    account = Account()
    assert bake(account, "--yes") == 0
    (request,) = account.asked
    assert (request["InstanceId"], request["BlockDeviceMappings"]) == (
        WORKER,
        [{"DeviceName": "/dev/sdf", "NoDevice": ""}],
    )


def other_bake(account: Account) -> None:
    """Have Ann's bake clean its worker, on another machine."""
    account.marked, account.detached, account.known_detached = [WORKER], [WORKER], [WORKER]
    numbers = {"process": "17", "seen": "1", "expires": "9999999999"}
    texts = {"user": "ann", "host": "her-laptop", "revision": "0"}
    account.record = {name: {"N": each} for name, each in numbers.items()} | {n: {"S": t} for n, t in texts.items()}


@pytest.mark.parametrize("image", [None, IMAGE])
def test_second_bake_terminates_no_instance(
    bake: Callable[..., int], capsys: pytest.CaptureFixture[str], image: str | None
) -> None:
    account = Account(image=image)
    other_bake(account)
    before = account.record
    assert bake(account, "--yes") == EXIT_FAILED
    assert "ann is running dlcluster bake for demo on her-laptop, last seen at" in capsys.readouterr().err
    assert (account.did, account.marked, account.record) == ([], [WORKER], before)


def test_bake_that_lost_its_lock_terminates_no_instance(bake: Callable[..., int]) -> None:
    account = Account(states=["failed"])
    create = account.create_image

    def overtaken(**request: Any) -> Any:
        answer = create(**request)
        other_bake(account)
        return answer

    account.create_image = overtaken  # type: ignore[method-assign]
    assert bake(account, "--yes") == EXIT_FAILED
    assert ("create" in account.did, "end" in account.did) == (True, False)


def test_no_worker_is_ended_before_the_question_is_answered(
    bake: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(marked=[WORKER], detached=[WORKER], known_detached=[WORKER])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> None:
        asked.append(question)
        raise click.Abort

    monkeypatch.setattr("click.confirm", confirm)
    bake(account)
    assert (account.did, account.marked, account.record) == ([], [WORKER], None)
    assert asked == [
        "The image will include everything that jobs have changed on worker3; jobs can become root there. "
        f"To bake a clean worker instead, replace it first: aws ec2 terminate-instances --instance-ids {WORKER}\n"
        f"Create the image, then terminate and replace worker3 ({WORKER})? Its disk is erased."
    ]


def test_a_job_that_began_during_the_question_keeps_its_worker(
    bake: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()
    monkeypatch.setattr("cli.image.bake.confirm", lambda *_, **__: setattr(account, "job_state", "RUNNING"))
    assert bake(account) == EXIT_FAILED
    assert account.did == []


@pytest.mark.parametrize("refuses", ["create", "end"])
def test_a_caller_without_permission_leaves_the_worker_in_its_group(bake: Callable[..., int], refuses: str) -> None:
    account = Account(refuses=refuses)
    assert bake(account, "--yes") == EXIT_FAILED
    assert (account.did, account.marked) == ([], [])


def test_worker_is_terminated_only_after_its_group_tag_is_removed(bake: Callable[..., int]) -> None:
    account = Account(fails_at="leave", group_tag_stays=3)
    with pytest.raises(Killed):
        bake(account, "--yes")
    assert account.did == ["detach", "mark", "end"]


def test_a_worker_that_its_group_keeps_has_no_tag_and_runs_on(
    bake: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(refuses="detach")
    assert bake(account, "--yes") == EXIT_FAILED
    assert "AWS refused DetachInstances: ValidationError: says AWS" in capsys.readouterr().err
    assert (account.did, account.marked) == ([], [])


@pytest.mark.parametrize("image", [None, IMAGE])
def test_a_node_that_somebody_else_may_have_detached_is_named_and_runs_on(
    bake: Callable[..., int], capsys: pytest.CaptureFixture[str], image: str | None
) -> None:
    """A bake that was killed has left the first of its two tags."""
    other = "i-00000000000000009"
    account = Account(marked=[other], detached=[other], image=image)
    assert bake(account, "--yes") == 0
    assert f"terminate it with: aws ec2 terminate-instances --instance-ids {other}\n" in capsys.readouterr().err
    assert other not in account.ended


def test_a_worker_that_cannot_be_ended_is_named(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    account = Account(fails_at="leave", group_tag_stays=100)
    with pytest.raises(Killed):
        bake(account, "--yes")
    assert f"terminate it with: aws ec2 terminate-instances --instance-ids {WORKER}" in capsys.readouterr().err


@pytest.mark.parametrize("other", [{"image_base": "ami-00000000000000002"}, {"image_architecture": "arm64"}])
def test_image_made_from_another_base_is_not_reused(bake: Callable[..., int], other: dict[str, str]) -> None:
    account = Account(image=IMAGE, **other)  # type: ignore[arg-type]
    assert bake(account, "--yes") == 0
    assert "create" in account.did


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_bake_ends_its_worker_unless_the_image_is_pending(bake: Callable[..., int], step: str) -> None:
    account = Account(fails_at=step)
    with pytest.raises(Killed):
        bake(account, "--yes")
    # Before it is detached, the worker is a node of the cluster; later, its pending image may need it.
    assert (account.did.count("end"), written()) == (int(step not in ("detach", "wait")), None)


@pytest.mark.parametrize("step", STEPS)
def test_the_next_bake_completes_one_that_was_killed(bake: Callable[..., int], step: str) -> None:
    account = Account(fails_at=step, is_killed=True)
    with pytest.raises(Killed):
        bake(account, "--yes")
    account.fails_at, account.is_dead, before = "", False, len(account.did)
    account.record = None  # its owner is dead
    assert bake(account, "--yes") == 0
    again = account.did[before:]
    # The image that exists is taken: no other worker is replaced.
    assert ("create" in again) == (step != "wait")
    assert (account.marked, written()) == ([], IMAGE)
    assert again.count("end") == (1 if step in ("detach", "mark", "wait") else 2)


def orphaned(**more: Any) -> Account:
    """Return the cluster after a kill of the bake that waited for its image."""
    return Account(image=IMAGE, marked=[WORKER], detached=[WORKER], known_detached=[WORKER], **more)


def test_the_worker_of_a_pending_image_is_ended_after_it(bake: Callable[..., int]) -> None:
    account = orphaned()
    assert bake(account) == 0
    assert (account.did, account.ended) == (["wait", "wait", "end"], [WORKER])


def test_the_worker_of_a_failed_image_is_ended(bake: Callable[..., int]) -> None:
    account = orphaned(states=["pending", "failed"])
    assert bake(account) == EXIT_FAILED
    assert account.ended == [WORKER]


@pytest.mark.parametrize("again", [False, True])
def test_at_the_timeout_the_worker_of_the_image_runs_on_and_is_named(
    bake: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: bool
) -> None:
    account = orphaned(states=["pending"]) if again else Account(states=["pending"])
    now = itertools.count(step=600)
    time = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr("cli.image.images.time", time)
    assert bake(account, "--yes") == EXIT_FAILED
    assert (account.ended, account.marked) == ([], [WORKER])
    kept, last = capsys.readouterr().err.splitlines()[-2:]
    assert kept.startswith(f"dlcluster: {WORKER} runs on until image {IMAGE} of it is complete; dlcluster bake then")
    assert kept.endswith(f"aws ec2 terminate-instances --instance-ids {WORKER}")
    assert last == f"dlcluster: waited 3600 s for image {IMAGE}: dlcluster bake waits again"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_ends_the_worker_without_a_terminal(
    bake: Callable[..., int], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    def hang_up(*_: object) -> None:
        monkeypatch.setattr("sys.stderr", Gone())
        signal.raise_signal(number)

    monkeypatch.setattr("cli.image.bake.clean", hang_up)
    account, before = Account(), signal.getsignal(number)
    # Click itself writes an empty line after an interrupt.
    with pytest.raises(OSError, match="Input/output error"):
        bake(account, "--yes")
    assert (account.ended, account.record) == ([WORKER], None)
    assert signal.getsignal(number) == before


def test_under_nohup_bake_outlives_its_terminal(bake: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.image.bake.clean", lambda *_: signal.raise_signal(signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert bake(Account(), "--yes") == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_worker_is_named_when_credentials_end(
    bake: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def expire(*_: object) -> None:
        def refuse(**_request: object) -> None:
            raise aws_error("ExpiredTokenException", "GetItem")

        monkeypatch.setattr(account, "get_item", refuse)
        raise ClusterError("the first error")

    account = Account()
    monkeypatch.setattr("cli.image.bake.clean", expire)
    assert bake(account, "--yes") == EXIT_FAILED
    assert (account.ended, account.marked) == ([], [WORKER])
    named, last = capsys.readouterr().err.splitlines()[-2:]
    assert named == (
        f"dlcluster: cannot tell whether {WORKER} still runs: unless dlcluster status lists it as a node, "
        f"terminate it with: aws ec2 terminate-instances --instance-ids {WORKER}"
    )
    assert last == "dlcluster: the first error"


def test_image_of_the_same_setup_is_reused(bake: Callable[..., int]) -> None:
    account = Account(image=IMAGE, states=["available"], job_state="RUNNING")
    assert bake(account) == 0
    assert (account.did, written()) == (["wait"], IMAGE)


def test_failed_image_is_reported(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    account = Account(states=["pending", "failed"])
    assert bake(account, "--yes") == EXIT_FAILED
    said = f"dlcluster: image {IMAGE} must become available, its state is failed: no disk"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert (account.did[-1], written()) == ("end", None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"job_state": "RUNNING"}, "job 2026-1 runs, and would lose a node: dlcluster stop, or wait for its end"),
        ({"members": (member(1),)}, "cluster demo has no worker to make an image of: dlcluster resize 1"),
        (
            {"members": (member(1), member(2, setup="failed:0123456789ab"))},
            "no worker has setup 0123456789ab: dlcluster setup runs it on older nodes",
        ),
        (
            {"release": "0.2.0:b", "members": (member(1), member(2, release="0.1.0:a"))},
            "no worker with the setup runs release 0.2.0:b: replace one (dlcluster status names them)",
        ),
    ],
)
def test_bake_is_refused_before_it_changes_anything(
    bake: Callable[..., int], capsys: pytest.CaptureFixture[str], changed: dict[str, Any], said: str
) -> None:
    account = Account(**changed)
    assert bake(account, "--yes") == EXIT_FAILED
    assert capsys.readouterr().err == f"dlcluster: {said}\n"
    assert (account.did, account.marked, written()) == ([], [], None)


def test_bake_needs_a_setup_and_a_confirmation(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert bake(Account(), "--yes", setup=None) == EXIT_FAILED
    assert "cluster demo has no setup: name one in cdk.json, then cdk deploy" in capsys.readouterr().err
    assert bake(Account()) == EXIT_USAGE
    assert "cannot prompt without a terminal: use --yes" in capsys.readouterr().err
    assert bake(Account(), "-c", "ami=ami-01234567") == EXIT_USAGE
    assert "-c ami cannot be combined with bake, which sets it" in capsys.readouterr().err
