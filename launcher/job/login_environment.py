"""What the processes on the launcher's own machine find: as much of its shell's variables as sshd would give them.

The other nodes have nothing of that shell, and engines hang when their settings differ between ranks; what all
are to have goes by ``--env``.
"""

from collections.abc import Mapping
from pathlib import Path

from bootstrap.contract import ENVIRONMENT_FILE

SESSION = {"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER", "XDG_RUNTIME_DIR"}
"""See ENVIRONMENT in sshd(8) and pam_systemd(8)."""


def session_environment(environ: Mapping[str, str], file: Path = Path(ENVIRONMENT_FILE)) -> dict[str, str]:
    """Those variables of `environ` that a session on any node has: sshd's own, and those of /etc/environment."""
    names = SESSION | _names(file)
    return {name: value for name, value in environ.items() if name in names or name.startswith("LC_")}


def _names(file: Path) -> set[str]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    # pam_env(8) takes a leading export.
    return {line.strip().removeprefix("export ").partition("=")[0].strip() for line in lines}
