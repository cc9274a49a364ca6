"""Replace the file of the team's keys, and end the logins of removed keys."""

import json
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from bootstrap.atomic_file import write_file
from bootstrap.errors import CommandError
from bootstrap.team_keys.keys import KeyListError, TeamKey, check_key

log = logging.getLogger(__name__)

SERVERS: Final = ("sshd", "sshd-session")
"""Names of the processes that serve one connection; OpenSSH uses the second from 9.8 on."""
JOURNAL: Final = (
    *("journalctl", "--boot", "--quiet", "--output=json", "--output-fields=MESSAGE,_PID", "_UID=0"),
    *(f"_COMM={name}" for name in SERVERS),
)
"""Command that prints what sshd's processes logged; fields with an underscore are journald's own, not a sender's."""
ACCEPTED: Final = "Accepted publickey for "
REPEAT_FOR_S: Final = 120
"""Seconds during which logins of removed keys are ended repeatedly: journald may write a line after the login."""

_TITLE_OF_A_LOGIN: Final = re.compile(r"(?:sshd|sshd-session): [^\s\[]+")
"""Title of a process after authentication, `sshd: ubuntu@pts/0`; others have brackets, `sshd: ubuntu [priv]`."""


def replace_team_keys(
    path: Path,
    keys: Collection[TeamKey],
    text: str,
    *,
    removed: Path,
    end_logins: Callable[[Mapping[str, str]], None],
    clock: Callable[[], float] = time.time,
) -> bool:
    """Make the file contain the text, then end the logins of keys that it no longer has; return True if it changed.

    For two minutes, the file ``removed`` contains the fingerprints and names of removed keys, even if the agent is
    killed in between; each call ends the logins that it finds.
    """
    kept = {key.fingerprint for key in keys}
    removed_keys = {each: name for each, name in {**_read_removed(removed), **_names(path)}.items() if each not in kept}
    if removed_keys:
        write_file(removed, "".join(f"{each} {name}\n" for each, name in sorted(removed_keys.items())))
    changed = write_file(path, text)
    if removed_keys:
        try:
            end_logins(removed_keys)
        except CommandError as error:
            log.warning("cannot end the logins of removed SSH keys: %s", error)
            return changed
        if clock() - removed.stat().st_mtime < REPEAT_FOR_S:
            return changed
    removed.unlink(missing_ok=True)
    return changed


def end_logins(
    names: Mapping[str, str], *, journal: str, already_logged: set[int], processes: Path = Path("/proc")
) -> None:
    """End the connections that sshd accepted with these keys, according to its lines in the journal.

    ``names`` has the keys' names by their fingerprints. Warn once about each login without such a line;
    ``already_logged`` keeps the processes for the next call.
    """
    accepted: dict[int, str] = {}
    for pid, message in _lines(journal):
        # A process id may be reused, so its last login counts.
        accepted[pid] = message.split()[-1]
    for pid, fingerprint in accepted.items():
        if fingerprint in names and _serves(processes / str(pid)):
            log.info("ending the login of removed SSH key %s (%s)", names[fingerprint], fingerprint)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    logins = set(_logins_without_line(accepted, processes))
    for pid in sorted(logins - already_logged):
        log.warning("cannot tell the SSH key of the login of process %d: the journal names none", pid)
    already_logged.clear()
    already_logged.update(logins)


def _lines(journal: str) -> Iterator[tuple[int, str]]:
    for line in journal.splitlines():
        entry = json.loads(line)
        message = entry.get("MESSAGE")
        if isinstance(message, str) and message.startswith(ACCEPTED):
            yield int(entry["_PID"]), message


def _logins_without_line(accepted: Collection[int], processes: Path) -> Iterator[int]:
    """Yield the login processes for which neither they nor their parents have logged a key."""
    for process in processes.iterdir():
        if not process.name.isdecimal() or not _serves(process):
            continue
        # The process may end at any moment.
        with suppress(OSError):
            title = (process / "cmdline").read_text(errors="replace").rstrip("\0 ")
            # The login process itself has the user's rights; its parent has logged the key.
            parent = re.search(r"^PPid:\s*(\d+)$", (process / "status").read_text(), re.MULTILINE)
            pids = {int(process.name), *([int(parent[1])] if parent else [])}
            if _TITLE_OF_A_LOGIN.fullmatch(title) and pids.isdisjoint(accepted):
                yield int(process.name)


def _serves(process: Path) -> bool:
    """Return True if the process is still one of sshd's."""
    try:
        return (process / "comm").read_text().strip() in SERVERS
    except OSError:
        return False


def _names(path: Path) -> dict[str, str]:
    """Return the names of the keys in the file that was written earlier, by their fingerprints."""
    words, names = _read(path).split(), dict[str, str]()
    for start in range(0, len(words) - 2, 3):
        kind, body, name = words[start : start + 3]
        # A user's edit must not stop the agent.
        with suppress(KeyListError):
            names[check_key(TeamKey(type=kind, body=body, name=name)).fingerprint] = name
    return names


def _read_removed(removed: Path) -> dict[str, str]:
    """Return the names of keys that were removed lately, by their fingerprints."""
    # An earlier release wrote no names.
    pairs = (line.partition(" ") for line in _read(removed).splitlines())
    return {fingerprint: name for fingerprint, _, name in pairs if fingerprint}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
