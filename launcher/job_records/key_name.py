"""Find the name of the SSH key with which the user logged in, for job records.

sshd writes a login's key to a file (ExposeAuthInfo in sshd_config(5)). The user could point to another file, so the
name is only for display and grants no access.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from bootstrap.contract import TEAM_KEYS_DIR

LOGIN_VARIABLE = "SSH_USER_AUTH"
"""Variable with the path of the file with the login's key; sudo and systemd do not pass the variable on."""
METHOD = "publickey"
MAX_NAME = 64
MAX_FILE = 64 * 1024


def key_name(environ: Mapping[str, str], *, user: str, root: Path = Path("/"), home: Path | None = None) -> str | None:
    """Return the name of the login's key, from the team's keys or else the user's own; None if the key has none."""
    login = environ.get(LOGIN_VARIABLE)
    keys = {tuple(words[1:3]) for words in _lines(Path(login)) if words[0] == METHOD} if login else set()
    own_keys_file = (home or Path.home()) / ".ssh/authorized_keys"
    for file in (root / TEAM_KEYS_DIR.lstrip("/") / user, own_keys_file) if keys else ():
        for words in _lines(file):
            if tuple(words[:2]) in keys and len(words) == 3 and words[2].isprintable():
                return words[2][:MAX_NAME]
    return None


def _lines(file: Path) -> Iterator[list[str]]:
    """Yield the words of each line; nothing if the file cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            text = lines.read(MAX_FILE)
    except OSError:
        return
    yield from (words for line in text.splitlines() if (words := line.split()))
