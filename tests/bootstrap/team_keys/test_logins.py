"""Check that removed keys' logins end, and no others."""

import json
import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from bootstrap.errors import CommandError
from bootstrap.files.ssh import team_keys
from bootstrap.team_keys.keys import TeamKey, parse
from bootstrap.team_keys.logins import end_logins, replace_team_keys
from tests.bootstrap.team_keys.team_public_keys import ED25519, ED25519_FINGERPRINT, RSA

ANNA, BOB = parse(f"{ED25519} anna {RSA} bob")


def line(pid: int, message: object) -> str:
    return json.dumps({"_PID": str(pid), "MESSAGE": message})


def accepted(pid: int, fingerprint: str) -> str:
    return line(pid, f"Accepted publickey for ubuntu from 10.0.0.9 port 1 ssh2: ED25519 {fingerprint}")


def test_only_processes_of_sshd_with_that_key_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for pid, name in {1: "sshd", 2: "sshd", 3: "sshd-session", 4: "bash", 5: "sshd"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *call: killed.append(call))
    journal = [
        *(accepted(pid, ED25519_FINGERPRINT) for pid in (2, 3, 4, 5, 6)),
        accepted(1, BOB.fingerprint),
        accepted(5, BOB.fingerprint),  # the process id was reused
        line(1, f"Failed publickey for {ED25519_FINGERPRINT}"),
        line(1, [255, 0]),
    ]
    names = {ED25519_FINGERPRINT: "anna"}
    end_logins(names, journal="\n".join(journal), already_logged=set(), processes=tmp_path)
    assert killed == [(2, signal.SIGTERM), (3, signal.SIGTERM)]
    assert caplog.messages == [f"ending the login of removed SSH key anna ({ED25519_FINGERPRINT})"] * 2


def test_login_missing_from_the_journal_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    titles = {
        10: "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups",
        11: "sshd: ubuntu [priv]",  # journal has its line, and its child
        12: "sshd: ubuntu@pts/0",
        21: "sshd-session: ubuntu [priv]",
        22: "sshd-session: ubuntu@notty",
        31: "sshd: [accepted]",
    }
    for pid, title in titles.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(title.split(":")[0] + "\n")
        (tmp_path / str(pid) / "cmdline").write_text(f"{title}\0\0")
        (tmp_path / str(pid) / "status").write_text(f"Name:\tsshd\nPPid:\t{pid - 1}\n")
    already_logged: set[int] = set()
    for _ in range(2):
        end_logins(
            {ED25519_FINGERPRINT: "anna"},
            journal=accepted(11, BOB.fingerprint),
            already_logged=already_logged,
            processes=tmp_path,
        )
    assert caplog.messages == ["cannot tell the SSH key of the login of process 22: the journal names none"]


def replace(
    tmp_path: Path, *keys: TeamKey, ended: list[Mapping[str, str]], fails: bool = False, after_s: int = 0
) -> None:
    def end(names: Mapping[str, str]) -> None:
        if fails:
            raise CommandError("journalctl failed")
        ended.append(names)

    file, removed = tmp_path / "team_keys/ubuntu", tmp_path / "run/removed"

    def clock() -> float:
        return removed.stat().st_mtime + after_s

    replace_team_keys(file, keys, team_keys(keys), removed=removed, end_logins=end, clock=clock)
    assert file.read_text() == "".join(f"{key.line}\n" for key in keys)


def test_logins_of_removed_keys_are_ended_with_retries(tmp_path: Path) -> None:
    ended: list[Mapping[str, str]] = []
    replace(tmp_path, ANNA, BOB, ended=ended)
    replace(tmp_path, BOB, ended=ended, fails=True)
    assert ended == []
    # journald may write the line of a login after the first call.
    for after_s in (0, 119, 121, 122):
        replace(tmp_path, BOB, ended=ended, after_s=after_s)
    assert ended == [{ANNA.fingerprint: "anna"}] * 3
