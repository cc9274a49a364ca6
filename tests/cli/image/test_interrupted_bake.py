"""Test what an interrupted bake leaves, at each of its steps, and how the next bake completes it."""

import errno
import io
import itertools
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cli.errors import EXIT_FAILED, ClusterError
from tests.cli.image.account import IMAGE, STEPS, WORKER, Account, Killed, ami_in_cdk_json, aws_error


def test_worker_is_terminated_only_after_its_group_tag_is_removed(bake: Callable[..., int]) -> None:
    account = Account(fails_at="leave", group_tag_stays=3)
    with pytest.raises(Killed):
        bake(account, "--yes")
    assert account.did == ["detach", "mark", "end"]


def test_worker_that_cannot_be_ended_is_named(bake: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    account = Account(fails_at="leave", group_tag_stays=100)
    with pytest.raises(Killed):
        bake(account, "--yes")
    assert f"terminate it with: aws ec2 terminate-instances --instance-ids {WORKER}" in capsys.readouterr().err


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_bake_ends_its_worker_unless_the_image_is_pending(bake: Callable[..., int], step: str) -> None:
    account = Account(fails_at=step)
    with pytest.raises(Killed):
        bake(account, "--yes")
    # Before it is detached, the worker is a node of the cluster; later, its pending image may need it.
    assert (account.did.count("end"), ami_in_cdk_json()) == (int(step not in ("detach", "wait")), None)


@pytest.mark.parametrize("step", STEPS)
def test_next_bake_completes_one_that_was_killed(bake: Callable[..., int], step: str) -> None:
    account = Account(fails_at=step, is_killed=True)
    with pytest.raises(Killed):
        bake(account, "--yes")
    account.fails_at, account.is_dead, before = "", False, len(account.did)
    account.record = None  # its holder is dead
    assert bake(account, "--yes") == 0
    again = account.did[before:]
    # The image that exists is taken: no other worker is replaced.
    assert ("create" in again) == (step != "wait")
    assert (account.marked, ami_in_cdk_json()) == ([], IMAGE)
    assert again.count("end") == (1 if step in ("detach", "mark", "wait") else 2)


def orphaned(**more: Any) -> Account:
    """Return the cluster after a kill of the bake that waited for its image."""
    return Account(image=IMAGE, marked=[WORKER], detached=[WORKER], known_detached=[WORKER], **more)


def test_worker_of_a_pending_image_is_ended_after_it(bake: Callable[..., int]) -> None:
    account = orphaned()
    assert bake(account) == 0
    assert (account.did, account.ended) == (["wait", "wait", "end"], [WORKER])


def test_worker_of_a_failed_image_is_ended(bake: Callable[..., int]) -> None:
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
def test_signal_ends_the_worker_without_a_terminal(
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


def test_worker_is_named_when_credentials_end(
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
