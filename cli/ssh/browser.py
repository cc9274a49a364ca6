"""Show an address of this machine in the user's browser, if there is a desktop."""

import os
import sys
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from cli.output import is_terminal

REMOTE_LOGIN: Final = ("SSH_CONNECTION", "SSH_TTY")
"""Variables that sshd sets: the user sits at another machine."""
DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
"""Variables that name the screen, of which a desktop on Linux sets at least one."""
Function = TypeVar("Function", bound=Callable[..., Any])


def browser_option(function: Function) -> Function:
    """Add ``--browser`` and ``--no-browser`` as the parameter ``browser``; None if neither is given."""
    return click.option(
        "--browser/--no-browser", default=None, help="Open the address in the browser (on a desktop's terminal)."
    )(function)


def open_address(address: str, *, wanted: bool | None) -> None:
    """Open an address in the browser; unless the user has said, only from a terminal on a desktop."""
    if wanted is None:
        wanted = is_terminal() and has_desktop(os.environ, platform=sys.platform)
    if wanted and not webbrowser.open(address):
        print("dlcluster: found no browser on this machine; open the address yourself", file=sys.stderr)


def has_desktop(variables: Mapping[str, str], *, platform: str) -> bool:
    """Return True if this process can show a window to its user.

    Without a desktop, ``webbrowser`` takes over the terminal with a text browser.
    """
    if any(variables.get(name) for name in REMOTE_LOGIN):
        return False
    return platform == "darwin" or any(variables.get(name) for name in DISPLAYS)
