"""Check what differs on Ubuntu 24.04 from the local nodes' Debian 12: its socket starts sshd.

The files in ubuntu-24.04/ are abridged versions of its own, which https://discourse.ubuntu.com/t/30189 explains.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap import contract
from bootstrap.files import ssh
from bootstrap.system import System

FILES = Path(__file__).parent / "ubuntu-24.04"
SYSTEMCTL = """#!/bin/bash
# As systemctl(1) has it: of a unit that does not run, `reload` is an error, and a plain restart starts it.
case "$1 $2" in
    "try-reload-or-restart ssh.service") [[ ! -e $STATE/active ]] || echo reloaded >> "$STATE/log";;
    "reload ssh.service") [[ -e $STATE/active ]] || { echo "ssh.service is not active, cannot reload." >&2; exit 1; };;
    *) echo "$*" >> "$STATE/log";;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a root with Ubuntu's files, and a systemctl according to which sshd runs if ``state/active`` exists."""
    root = Path(shutil.copytree(FILES, tmp_path / "root"))
    (tmp_path / "state").mkdir()
    (tmp_path / "bin").mkdir()
    systemctl = tmp_path / "bin/systemctl"
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(systemctl.parent), prepend=":")
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    return root


@pytest.mark.allow_subprocess
def test_before_the_first_connection_sshd_is_left_to_its_socket(machine: Path) -> None:
    System(machine).reload_sshd()
    assert list((machine.parent / "state").iterdir()) == []


@pytest.mark.allow_subprocess
def test_after_the_first_connection_sshd_reads_its_configuration_again(machine: Path) -> None:
    (machine.parent / "state/active").touch()
    System(machine).reload_sshd()
    assert (machine.parent / "state/log").read_text() == "reloaded\n"


def effective(root: Path) -> dict[str, list[str]]:
    """Return sshd's effective configuration below a root."""
    config = root / "etc/ssh/sshd_config.below"
    config.write_text((root / "etc/ssh/sshd_config").read_text().replace("/etc/ssh", f"{root}/etc/ssh"))
    key = root / "etc/ssh/key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    sshd = shutil.which("sshd", path="/usr/sbin:/sbin")
    assert sshd
    command = [sshd, "-T", "-f", str(config), "-h", str(key)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.allow_subprocess
@pytest.mark.parametrize("sshd", [ssh.SSHD_MASTER, ssh.SSHD_WORKER])
def test_our_settings_are_in_effect_beside_the_images_own(tmp_path: Path, sshd: str) -> None:
    root = Path(shutil.copytree(FILES, tmp_path / "root"))
    before = effective(root)
    (root / contract.SSHD_CONFIG_FILE.lstrip("/")).write_text(sshd)
    after = effective(root)
    ours = dict(line.split(" ", 1) for line in sshd.splitlines())
    assert {name: after[name.lower()] for name in ours} == {name: [value] for name, value in ours.items()}
    # The socket's addresses are derived from these only at boot, so a reload would not follow.
    listened = ("port", "listenaddress", "addressfamily")
    assert [before[name] for name in listened] == [after[name] for name in listened]
    assert after["passwordauthentication"] == ["no"]
