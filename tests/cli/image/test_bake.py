"""Test when ``dlcluster bake`` refuses, the order of its steps, and which worker and image it takes."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pytest

from cli.errors import EXIT_FAILED, EXIT_USAGE
from tests.cli.image.account import IMAGE, SHA256, STEPS, WORKER, Account, ami_in_cdk_json, member


def test_newest_worker_becomes_the_image(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    account = Account()
    assert bake(account, "--yes", "--json") == 0
    assert account.did == [*STEPS, "wait", "end"]
    out, err = capsys.readouterr()
    assert json.loads(out) == {"version": 1, "cluster": "demo", "ami": IMAGE, "sha256": SHA256, "instance_id": WORKER}
    assert ami_in_cdk_json() == IMAGE
    action = f"making an image of worker3 ({WORKER}), then terminating and replacing it"
    assert f"dlcluster: demo in eu-west-1: {action}\n" in err
    assert f"dlcluster: waiting for image {IMAGE}, 0 s so far\n" in err
    assert "to apply it, run: cdk deploy\n" in err
    assert f"aws ec2 deregister-image --delete-associated-snapshots --image-id {IMAGE}" in err


def test_worker_that_was_launched_last_becomes_the_image(bake: Callable[..., int]) -> None:
    account = Account(launched=(1, 9, 3))
    assert bake(account, "--yes") == 0
    assert account.detached == ["i-00000000000000002"]


def test_image_is_of_the_root_disk_only(bake: Callable[..., int]) -> None:
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
    account.record = {name: {"N": number} for name, number in numbers.items()} | {n: {"S": t} for n, t in texts.items()}


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


def test_job_that_began_during_the_question_keeps_its_worker(
    bake: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()
    monkeypatch.setattr("cli.image.bake.confirm", lambda *_, **__: setattr(account, "job_state", "RUNNING"))
    assert bake(account) == EXIT_FAILED
    assert account.did == []


@pytest.mark.parametrize("refuses", ["create", "end"])
def test_caller_without_permission_leaves_the_worker_in_its_group(bake: Callable[..., int], refuses: str) -> None:
    account = Account(refuses=refuses)
    assert bake(account, "--yes") == EXIT_FAILED
    assert (account.did, account.marked) == ([], [])


def test_worker_that_its_group_keeps_has_no_tag_and_runs_on(
    bake: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(refuses="detach")
    assert bake(account, "--yes") == EXIT_FAILED
    assert "AWS refused DetachInstances: ValidationError: says AWS" in capsys.readouterr().err
    assert (account.did, account.marked) == ([], [])


@pytest.mark.parametrize("image", [None, IMAGE])
def test_node_that_somebody_else_may_have_detached_is_named_and_runs_on(
    bake: Callable[..., int], capsys: pytest.CaptureFixture[str], image: str | None
) -> None:
    """A bake that was killed has left the first of its two tags."""
    other = "i-00000000000000009"
    account = Account(marked=[other], detached=[other], image=image)
    assert bake(account, "--yes") == 0
    assert f"terminate it with: aws ec2 terminate-instances --instance-ids {other}\n" in capsys.readouterr().err
    assert other not in account.ended


@pytest.mark.parametrize("other", [{"image_base": "ami-00000000000000002"}, {"image_architecture": "arm64"}])
def test_image_made_from_another_base_is_not_reused(bake: Callable[..., int], other: dict[str, str]) -> None:
    account = Account(image=IMAGE, **other)  # type: ignore[arg-type]
    assert bake(account, "--yes") == 0
    assert "create" in account.did


def test_image_of_the_same_setup_is_reused(bake: Callable[..., int]) -> None:
    account = Account(image=IMAGE, states=["available"], job_state="RUNNING")
    assert bake(account) == 0
    assert (account.did, ami_in_cdk_json()) == (["wait"], IMAGE)


def test_failed_image_is_reported(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    account = Account(states=["pending", "failed"])
    assert bake(account, "--yes") == EXIT_FAILED
    said = f"dlcluster: image {IMAGE} must become available, its state is failed: no disk"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert (account.did[-1], ami_in_cdk_json()) == ("end", None)


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
    assert (account.did, account.marked, ami_in_cdk_json()) == ([], [], None)


def test_bake_needs_a_setup_and_a_confirmation(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert bake(Account(), "--yes", setup=None) == EXIT_FAILED
    assert "cluster demo has no setup: name one in cdk.json, then cdk deploy" in capsys.readouterr().err
    assert bake(Account()) == EXIT_USAGE
    assert "cannot prompt without a terminal: use --yes" in capsys.readouterr().err
    assert bake(Account(), "-c", "ami=ami-01234567") == EXIT_USAGE
    assert "-c ami cannot be combined with bake, which sets it" in capsys.readouterr().err
