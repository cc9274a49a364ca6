"""Test the line about an upload, and that nothing of the progress bar is left on the terminal when one fails."""

import io
import sys
from dataclasses import replace

import pytest

from cli.errors import ClusterError
from cli.files.progress import MIN_BAR_BYTES, summary, upload_bar
from cli.files.upload import Upload

ERASE_LINE = "\x1b[2K"
SHOW_CURSOR = "\x1b[?25h"
"""See console_codes(4)."""


class Terminal(io.StringIO):
    """A terminal that records what is written to it."""

    def isatty(self) -> bool:
        return True


def send(size: int, error: BaseException | None) -> None:
    with upload_bar(size) as advance:
        advance(size // 2)
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [ClusterError("the connection was lost"), KeyboardInterrupt()])
def test_bar_is_erased_before_the_error_is_printed(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(type(error)):
        send(2 * MIN_BAR_BYTES, error)
    _, drawn, after = terminal.getvalue().rpartition("sending to the master")
    assert drawn
    assert ERASE_LINE in after
    assert SHOW_CURSOR in after


def test_small_upload_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    send(MIN_BAR_BYTES - 1, None)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("ignored", "end"),
    [
        ([], "to the master"),
        (["data/"], "to the master; git ignores data/"),
        (["a.pt", "b\x1b.pt", "x/y/", "data/"], "; git ignores data/, x/y/, a.pt and 1 more"),
        (["b\x1b.pt"], "; git ignores b .pt"),
    ],
)
def test_summary_names_what_git_ignores(ignored: list[str], end: str) -> None:
    sent = Upload(name="x", files=2, size=2, sent_files=1, sent_size=1, ignored=ignored)
    assert summary(sent).endswith(end)
    assert summary(replace(sent, sent_files=0)).startswith("the master's copy already has all 2 files")
    assert summary(replace(sent, sent_files=0)).endswith("".join(f"; {part}" for part in end.split("; ")[1:]))
