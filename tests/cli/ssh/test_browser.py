"""Test that the commands open the browser on a desktop, and nothing where no desktop is."""

import os
import socket
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.contract import MASTER
from cli.aws.nodes import ClusterNode
from cli.commands.access import jupyter, tensorboard, tunnel
from cli.errors import EXIT_INTERRUPTED
from cli.main import main
from cli.ssh.browser import DISPLAYS, REMOTE_LOGIN, has_desktop, open_address
from cli.ssh.forward import LOOPBACK

ADDRESS = f"http://{LOOPBACK}:6006/"
DESKTOP = {"DISPLAY": ":0"}
OVER_SSH = {"SSH_CONNECTION": "203.0.113.9 50000 10.0.0.4 22"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the addresses that the browser opens."""
    addresses: list[str] = []

    def collect(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", collect)
    return addresses


def sit_at(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], *, terminal: bool = True) -> None:
    """Give the test a terminal and the variables of a machine with Linux."""
    for name in (*REMOTE_LOGIN, *DISPLAYS):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("cli.ssh.browser.is_terminal", lambda: terminal)
    monkeypatch.setattr(sys, "platform", "linux")


def end() -> None:
    """Wait as if the user pressed Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def app(*_arguments: Any, **_options: Any) -> Iterator[SimpleNamespace]:
    """Stand in for a web application that answers."""
    yield SimpleNamespace(address=ADDRESS, has_directory=True, wait=end)


@contextmanager
def forwarded(*_arguments: Any, here: int, **_options: Any) -> Iterator[SimpleNamespace]:
    """Stand in for an ssh whose tunnel leads to a program."""
    reading, writing = os.pipe()
    os.write(writing, tunnel.OPEN)
    with socket.socket() as listener, os.fdopen(reading, "rb") as stdout, os.fdopen(writing, "wb"):
        listener.bind((LOOPBACK, here))
        listener.listen()
        yield SimpleNamespace(stdout=stdout, poll=lambda: None, wait=end)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands find a master and what they show, without AWS and ssh."""
    master = ClusterNode(node_index=1, instance_id="i-1", address="10.0.0.4", node_type=MASTER, host_key="")
    context = SimpleNamespace(membership=SimpleNamespace(members=()), cluster=SimpleNamespace(name="demo"))
    monkeypatch.setattr(tunnel, "look_up_context", lambda _selection: context)
    monkeypatch.setattr(tunnel, "resolve_access", lambda _context: None)
    monkeypatch.setattr(tunnel, "choose_node", lambda *_words, **_options: master)
    monkeypatch.setattr(tunnel, "forwarding", forwarded)
    monkeypatch.setattr(jupyter, "run_app", app)
    monkeypatch.setattr(tensorboard, "run_app", app)


@pytest.mark.parametrize(
    "words", [["tunnel", "master", "6006"], ["tensorboard"], ["jupyter"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize(
    ("variables", "terminal", "option", "opens"),
    [
        (DESKTOP, True, None, True),
        (DESKTOP, True, "--no-browser", False),
        (DESKTOP, False, None, False),
        ({}, True, None, False),
        ({}, True, "--browser", True),
        (DESKTOP | OVER_SSH, True, None, False),
    ],
)
@pytest.mark.usefixtures("commands")
def test_command_opens_the_browser_on_a_desktop_only(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    opened: list[str],
    words: list[str],
    variables: Mapping[str, str],
    terminal: bool,
    option: str | None,
    opens: bool,
) -> None:
    sit_at(monkeypatch, variables, terminal=terminal)
    assert main([*words, *([option] if option else [])]) == EXIT_INTERRUPTED
    printed = capsys.readouterr().out.split()[0]
    # Jupyter's address contains its token, so the browser gets a page of this machine that leads to it.
    expected = "file:///" if words == ["jupyter"] else printed
    assert [address.startswith(expected) for address in opened] == [True] * opens


@pytest.mark.parametrize(
    ("variables", "platform", "expected"),
    [
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ""}, "linux", False),
        ({}, "darwin", True),
        ({"SSH_TTY": "/dev/ttys001"}, "darwin", False),
    ],
)
def test_desktop_is_told_by_its_variables(variables: Mapping[str, str], platform: str, expected: bool) -> None:
    assert has_desktop(variables, platform=platform) is expected


def test_user_who_wants_a_browser_hears_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _address: False)
    open_address(ADDRESS, wanted=True)
    assert capsys.readouterr().err == "dlcluster: found no browser on this machine; open the address yourself\n"
