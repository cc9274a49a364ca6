"""Test the programs that the agent runs: systemctl, nvidia-smi, ssh-keygen."""

import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap import system
from bootstrap.cluster.record_validation import check_key
from bootstrap.errors import CommandError


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "GPU 0: NVIDIA L4\n", "")

    monkeypatch.setattr("subprocess.run", run)
    return commands


@pytest.mark.parametrize("unit", ["ssh.service", "sshd.service"])
def test_ssh_daemon_is_reloaded_by_the_name_it_has(tmp_path: Path, ran: list[list[str]], unit: str) -> None:
    units = tmp_path / "lib/systemd/system"
    units.mkdir(parents=True)
    (units / unit).touch()
    system.System(tmp_path).reload_sshd()
    assert ran == [["systemctl", "try-reload-or-restart", unit]]


def test_missing_ssh_daemon_is_an_error_and_nothing_runs(tmp_path: Path, ran: list[list[str]]) -> None:
    with pytest.raises(CommandError, match=r"sshd must be one of ssh\.service, sshd\.service, found neither"):
        system.System(tmp_path).reload_sshd()
    assert not ran


def test_services_are_commanded(tmp_path: Path, ran: list[list[str]]) -> None:
    machine = system.System(tmp_path)
    machine.set_environment({"A": "1", "B": "two words"})
    machine.reload_units()
    machine.enable("a.service")
    machine.restart("a.service")
    machine.enable_linger("ubuntu")
    machine.broadcast_to_terminals("it ends")
    assert ran == [
        ["systemctl", "set-environment", "A=1", "B=two words"],
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", "--now", "a.service"],
        ["systemctl", "restart", "a.service"],
        ["loginctl", "enable-linger", "ubuntu"],
        ["wall", "it ends"],
    ]


def test_units_are_stopped_if_they_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[tuple[list[str], float]] = []
    listed = (
        "cron.service loaded active running Cron\n"
        "rsyslog.service not-found inactive dead rsyslog.service\n"
        "user@0.service loaded active running User\n"
        "user@1000.service loaded active running User\n"
    )

    def run(command: list[str], *, timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        if command[1] == "stop":
            stopped.append((command, timeout))
        return subprocess.CompletedProcess(command, 0, listed, "")

    monkeypatch.setattr("subprocess.run", run)
    system.System(tmp_path).stop(["cron.service", "rsyslog.service", "user@*.service"], except_unit="user@1000.service")
    # systemd kills what has not stopped after 90 s.
    assert stopped == [(["systemctl", "stop", "cron.service", "user@0.service"], 180)]


@pytest.mark.parametrize(("listing", "percent"), [("0\n97\n3\n", 97), ("[N/A]\n[N/A]\n", None), ("", None)])
def test_busiest_readable_gpu_determines_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str, percent: int | None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert system.System(tmp_path).gpu_percent() is None
    (tmp_path / "nvidia-smi").touch(mode=0o755)
    monkeypatch.setattr(system, "run", lambda _command: listing)
    assert system.System(tmp_path).gpu_percent() == percent


def test_nvidia_smi_runs_only_where_it_is_installed(
    tmp_path: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert system.System(tmp_path).nvidia_smi() is None
    (tmp_path / "nvidia-smi").touch(mode=0o755)
    assert system.System(tmp_path).nvidia_smi() == "GPU 0: NVIDIA L4\n"
    assert ran == [["nvidia-smi", "-L"]]


@pytest.mark.allow_subprocess
def test_remaining_gpus_are_listed_after_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho GPU 0: NVIDIA L4\necho Unable to determine the device handle >&2\nexit 15\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert system.System(tmp_path).nvidia_smi() == "GPU 0: NVIDIA L4\n"


def test_hanging_nvidia_smi_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 30)

    (tmp_path / "nvidia-smi").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("subprocess.run", hang)
    with pytest.raises(CommandError, match=r"nvidia-smi -L failed: .*timed out after 30 seconds"):
        system.System(tmp_path).nvidia_smi()


@pytest.mark.allow_subprocess
def test_key_pair_has_no_passphrase_and_names_its_owner(tmp_path: Path) -> None:
    system.System(tmp_path).make_key(tmp_path / "id_ed25519", comment="i-0123456789abcdef0")
    kind, key, comment = (tmp_path / "id_ed25519.pub").read_text().split()
    assert check_key(f"{kind} {key}", "key")
    assert comment == "i-0123456789abcdef0"
    assert system.run(["ssh-keygen", "-y", "-P", "", "-f", str(tmp_path / "id_ed25519")]).split()[:2] == [kind, key]


@pytest.mark.allow_subprocess
def test_failure_of_a_program_contains_its_output() -> None:
    program = "import sys; sys.exit('no such unit')"
    with pytest.raises(CommandError, match="-c exited 1: no such unit"):
        system.run([sys.executable, "-c", program])


def test_missing_or_slow_program_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 30)

    def missing(command: list[str], **_: object) -> None:
        raise FileNotFoundError(2, "No such file", command[0])

    monkeypatch.setattr("subprocess.run", slow)
    with pytest.raises(CommandError, match=r"systemctl restart failed: .*timed out after 30 seconds"):
        system.run(["systemctl", "restart"])
    monkeypatch.setattr("subprocess.run", missing)
    with pytest.raises(CommandError, match=r"systemctl restart failed: .*No such file"):
        system.run(["systemctl", "restart"])


@pytest.mark.allow_subprocess
def test_error_has_the_line_of_a_failed_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho Failed to initialize NVML: Driver/library version mismatch\nexit 18\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(CommandError, match="nvidia-smi -L exited 18: Failed to initialize NVML"):
        system.System(tmp_path).nvidia_smi()
