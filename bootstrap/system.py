"""Run the operating system's programs that the agent needs."""

import logging
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from bootstrap.errors import CommandError
from bootstrap.team_keys.logins import JOURNAL, end_logins

log = logging.getLogger(__name__)

GPUS_LISTED: Final = (0, 6, 15)
"""Exit codes of nvidia-smi with a correct list: all GPUs work, there is none, one has fallen off the bus
(manual of nvidia-smi, "RETURN VALUE")."""
COMMAND_TIMEOUT_S: Final = 30
STOP_TIMEOUT_S: Final = 180
"""Seconds for a unit to stop, more than systemd's 90, and for memory to come back from swap."""
# Debian and Ubuntu call the daemon ssh, Amazon Linux calls it sshd.
SSH_UNITS: Final = ("ssh.service", "sshd.service")
UNIT_DIRECTORIES: Final = ("usr/lib/systemd/system", "lib/systemd/system", "etc/systemd/system")


def run(command: Sequence[str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Run a command to its end; return its output. Raises CommandError."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s).stdout
    except subprocess.CalledProcessError as error:
        output = error.stderr.strip()[-200:]
        raise CommandError(f"{command[0]} {command[1]} exited {error.returncode}: {output}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{command[0]} {command[1]} failed: {error}") from error


class System:
    """The operating system's commands, as the agent and the installation use them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._logged_logins: set[int] = set()

    def set_environment(self, values: Mapping[str, str]) -> None:
        """Set the variables for every unit started from now on."""
        run(["systemctl", "set-environment", *(f"{name}={value}" for name, value in values.items())])

    def reload_sshd(self) -> None:
        """Make a running sshd read its configuration again."""
        run(["systemctl", "try-reload-or-restart", self._ssh_unit()])

    def reload_units(self) -> None:
        """Make systemd read its unit files again."""
        run(["systemctl", "daemon-reload"])

    def enable(self, unit: str) -> None:
        """Start the unit now and at every boot."""
        run(["systemctl", "enable", "--now", unit])

    def restart(self, unit: str) -> None:
        """Restart the unit."""
        run(["systemctl", "restart", unit])

    def disable(self, unit: str) -> None:
        """Stop the unit, and start it at no boot; there may be no such unit."""
        if any((self._root / directory / unit).exists() for directory in UNIT_DIRECTORIES):
            run(["systemctl", "disable", "--now", unit], timeout_s=STOP_TIMEOUT_S)

    def stop(self, units: Sequence[str], *, except_unit: str | None) -> None:
        """Stop the given units that are loaded. They start again at the next boot. A name may have wildcards."""
        listed = run(["systemctl", "list-units", "--all", "--plain", "--no-legend", *units]).splitlines()
        # Units that others only mention are listed as not found.
        name_and_load = [line.split()[:2] for line in listed if line.strip()]
        if loaded := [name for name, load in name_and_load if load == "loaded" and name != except_unit]:
            run(["systemctl", "stop", *loaded], timeout_s=STOP_TIMEOUT_S)

    def disable_swap(self) -> list[str]:
        """Disable swap; return the swap files."""
        swaps = [line.split() for line in Path("/proc/swaps").read_text().splitlines()[1:]]
        if swaps:
            run(["swapoff", "--all"], timeout_s=STOP_TIMEOUT_S)
        return [name for name, kind, *_ in swaps if kind == "file"]

    def unmount(self, directory: str) -> None:
        """Unmount what is mounted on a directory, if anything is, also while it is in use."""
        if Path(directory).is_mount():
            run(["umount", "--lazy", directory])

    def end_other_sessions(self, own: str | None) -> None:
        """End all logins but one."""
        sessions = [line.split()[0] for line in run(["loginctl", "list-sessions", "--no-legend"]).splitlines()]
        for session in sessions:
            if session != own:
                # It may have ended by itself.
                with suppress(CommandError):
                    run(["loginctl", "terminate-session", session])

    def relinquish_journal(self) -> None:
        """Make journald log only to memory."""
        run(["journalctl", "--relinquish-var"])

    def enable_linger(self, user: str) -> None:
        """Start the user's systemd at boot, and keep it running after logout."""
        run(["loginctl", "enable-linger", user])

    def nvidia_smi(self) -> str | None:
        """Return the output of ``nvidia-smi -L``; None if it is not installed.

        Raises CommandError if it fails because the driver is not loaded yet or its version differs from the library's.
        """
        if shutil.which("nvidia-smi") is None:
            return None
        try:
            done = subprocess.run(
                ["nvidia-smi", "-L"], check=False, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandError(f"nvidia-smi -L failed: {error}") from error
        if done.returncode not in GPUS_LISTED:
            output = " ".join((done.stdout + done.stderr).split())[:200]
            raise CommandError(f"nvidia-smi -L exited {done.returncode}: {output}")
        return done.stdout

    def gpu_percent(self) -> int | None:
        """Return the utilization of the busiest GPU in percent; None if no GPU reports it, as in MIG mode."""
        if shutil.which("nvidia-smi") is None:
            return None
        listing = run(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"])
        return max((int(line) for line in listing.split() if line.isdigit()), default=None)

    def broadcast_to_terminals(self, sentence: str) -> None:
        """Write a line to the terminals of all users."""
        run(["wall", sentence])

    def make_key(self, file: Path, *, comment: str) -> None:
        """Write an ed25519 key pair without a passphrase to ``file`` and ``file.pub``."""
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)])

    def end_logins(self, names: Mapping[str, str]) -> None:
        """End the SSH connections accepted with these keys, named by fingerprint. Raises CommandError."""
        end_logins(names, journal=run(JOURNAL), already_logged=self._logged_logins)

    def _ssh_unit(self) -> str:
        for unit in SSH_UNITS:
            if any((self._root / directory / unit).exists() for directory in UNIT_DIRECTORIES):
                return unit
        raise CommandError(f"sshd must be one of {', '.join(SSH_UNITS)}, found neither")
