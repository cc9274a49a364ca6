"""Select the variables of processes on the launcher's own machine: the variables that sshd would set there.

The other nodes lack the launcher's shell, and frameworks hang if their settings differ between ranks. ``--env`` passes
a variable to all nodes.
"""

from collections.abc import Mapping
from pathlib import Path

from bootstrap.contract import ENVIRONMENT_FILE

SESSION = {"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER", "XDG_RUNTIME_DIR"}
"""Variables that sshd and PAM set; see ENVIRONMENT in sshd(8) and pam_systemd(8)."""


def session_environment(environ: Mapping[str, str], file: Path = Path(ENVIRONMENT_FILE)) -> dict[str, str]:
    """Return the variables of a session on any node: those of sshd and of /etc/environment."""
    names = SESSION | _names(file)
    return {name: value for name, value in environ.items() if name in names or name.startswith("LC_")}


def _names(file: Path) -> set[str]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    # pam_env(8) accepts a leading export.
    return {line.strip().removeprefix("export ").partition("=")[0].strip() for line in lines}
