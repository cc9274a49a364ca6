"""Test where dlcluster finds its own program for ssh's configuration."""

import sys
import sysconfig
from pathlib import Path

import pytest

from cli.ssh import access


def test_ssh_config_names_the_running_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "CHECKOUT", tmp_path / "site-packages")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "bin"))
    running = tmp_path / "home" / "bin" / "dlcluster"
    running.parent.mkdir(parents=True)
    running.touch()
    monkeypatch.setattr(sys, "argv", [str(running)])
    assert access.own_program() == running
