"""Choose the variables that processes on the launcher's own machine get: those that sshd would give them.

The other nodes know nothing of the launcher's shell, and engines hang if their settings differ between ranks.
``--env`` passes a variable to all.
"""

from collections.abc import Mapping
from pathlib import Path

from bootstrap.contract import ENVIRONMENT_FILE

SESSION = {"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER", "XDG_RUNTIME_DIR"}
"""See ENVIRONMENT in sshd(8) and pam_systemd(8)."""


def session_environment(environ: Mapping[str, str], file: Path = Path(ENVIRONMENT_FILE)) -> dict[str, str]:
    """Return the variables that a session on any node has: sshd's own, and those of /etc/environment."""
    names = SESSION | _names(file)
    return {name: value for name, value in environ.items() if name in names or name.startswith("LC_")}


def _names(file: Path) -> set[str]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    # pam_env(8) takes a leading export.
    return {line.strip().removeprefix("export ").partition("=")[0].strip() for line in lines}
