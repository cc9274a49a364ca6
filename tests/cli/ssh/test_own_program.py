"""Test where dlcluster finds its own program for ssh's configuration."""

import sys
import sysconfig
from pathlib import Path

import pytest

from cli.ssh import access


def test_the_program_of_a_users_own_installation_is_the_running_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "CHECKOUT", tmp_path / "site-packages")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "bin"))
    running = tmp_path / "home" / "bin" / "dlcluster"
    running.parent.mkdir(parents=True)
    running.touch()
    monkeypatch.setattr(sys, "argv", [str(running)])
    assert access.own_program() == running
