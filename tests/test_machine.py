"""The comparison that the gate makes notices what is left and what is lost."""

import sys
from pathlib import Path

import pytest

from tests import machine

LEFT = Path("/tmp/deeplearning-left-by-a-test")


def test_each_thing_is_named_with_its_kind() -> None:
    before = {"link": frozenset({"lo", "eth0"}), "mount": frozenset({"a"})}
    after = {"link": frozenset({"lo"}), "mount": frozenset({"a", "b"})}
    assert machine.difference(before, after) == ["link lost: eth0", "mount left: b"]


@pytest.mark.parametrize(("script", "code"), [("True", 0), ("exit(7)", 7)])
def test_the_commands_own_exit_code_is_returned(
    script: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["machine", sys.executable, "-c", script])
    assert machine.main() == code
    assert capfd.readouterr().err == ""


def test_fails_when_a_command_leaves_a_file(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(machine, "SETTLE_S", 0.0)
    monkeypatch.setattr(sys, "argv", ["machine", "touch", str(LEFT)])
    try:
        assert machine.main() == 1
    finally:
        LEFT.unlink()
    assert f"temporary file left: {LEFT.name}" in capfd.readouterr().err
