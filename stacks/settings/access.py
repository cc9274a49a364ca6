"""Define the settings for logging in to a cluster."""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bootstrap.team_keys.keys import NAME, TYPES, KeyListError, TeamKey, check_key, check_team_keys
from stacks.settings.base import Settings, SettingsError, require, shown
from stacks.settings.parsing import PARSER, parse_cidr, parse_list

_KEY_FILE: Final = re.compile(r"~|\.{0,2}/|.*\.pub\Z")
_KEY_PATH: Final = re.compile(r"\A[^\s]*/|\.pub\Z")
"""Matches text that can only be meant as a file's path."""
_NAMED: Final = re.compile(rf"(?P<name>{NAME.pattern})=(?P<rest>.+)", re.DOTALL)
_PRIVATE: Final = "PRIVATE KEY-----"
_MAX_KEY_FILE: Final = 64 * 1024
WIDEST_SSH_PREFIX: Final = 8
"""Shortest prefix of a block that does not cover much of the internet."""
MAX_SSH_LOCATIONS: Final = 20
"""Maximum number of blocks. AWS allows 60 rules in a security group by default: each block needs one rule, and the
allow list needs 20."""


@dataclass(frozen=True, kw_only=True)
class AccessSettings(Settings):
    """The SSH key, and the way to the nodes: the master's SSH port, or Session Manager."""

    key_name: str | None = None
    """EC2 key pair for logging in. Default: none, so that only ``ssh_keys`` allow SSH logins."""
    ssh_keys: tuple[str, ...] | None = field(default=None, metadata={PARSER: parse_list})
    """Public SSH keys of the team: files, as paths relative to cdk.json, or the keys themselves, each alone or as
    ``NAME=KEY``. Default: none, so that only ``key_name`` counts. A key's name, by default its comment, appears
    in jobs and logs. A deploy adds and removes keys on all running nodes."""
    ssh_location: str | tuple[str, ...] | None = field(default=None, metadata={PARSER: parse_list})
    """IPv4 block that may reach the master's SSH port, or a list of at most 20. Default: none until
    ``dlcluster allow-ip``."""
    private: bool = False
    """With true no node has a public address or an open SSH port: logins go through Session Manager. Cannot be
    changed after creation."""

    def check(self) -> None:
        """Check the key pair's name, the team's keys and the blocks; ``dlcluster preflight`` looks up the key pair."""
        super().check()
        if self.key_name is not None:
            _check_key_name(self.key_name)
        try:
            check_team_keys(self.team_keys)
        except KeyListError as error:
            raise SettingsError(f"ssh_keys: {error}") from None
        for block in self.ssh_locations:
            parse_cidr("ssh_location", block)
        if (count := len(self.ssh_locations)) > MAX_SSH_LOCATIONS:
            raise SettingsError(f"ssh_location must name at most {MAX_SSH_LOCATIONS} blocks, got {count}")
        if self.ssh_locations:
            allowed = "left out with private: logins go through Session Manager, so no address reaches an SSH port"
            require(not self.private, "ssh_location", ",".join(self.ssh_locations), allowed)

    @property
    def team_keys(self) -> tuple[TeamKey, ...]:
        """Return the keys of ``ssh_keys``, read from their files. Raises SettingsError."""
        return tuple(key for entry in self.ssh_keys or () for key in _read_keys(entry))

    @property
    def ssh_locations(self) -> tuple[str, ...]:
        """Return the distinct blocks of ``ssh_location``."""
        blocks = self.ssh_location or ()
        return tuple(dict.fromkeys([blocks] if isinstance(blocks, str) else blocks))

    def warnings(self) -> dict[str, str]:
        """Warn of a cluster to which nobody can log in, or that much of the internet can reach."""
        warnings = super().warnings()
        if self.private:
            pass  # IAM decides who may log in
        elif not self.ssh_locations:
            warnings["no-ssh"] = (
                "ssh_location is not set: the master accepts no SSH connection until dlcluster allow-ip adds an address"
            )
        else:
            warnings |= _warn_of_wide_blocks(self.ssh_locations)
        if self.key_name is None and not self.ssh_keys:
            warnings["no-key"] = "key_name is not set: nobody can log in over SSH"
        return warnings


def _warn_of_wide_blocks(blocks: tuple[str, ...]) -> dict[str, str]:
    wide = [each for each in blocks if parse_cidr("ssh_location", each).prefixlen < WIDEST_SSH_PREFIX]
    if not wide:
        return {}
    whole = "the whole internet" if "0.0.0.0/0" in wide else "much of the internet"
    blocks_shown = "0.0.0.0/0" if "0.0.0.0/0" in wide else ",".join(wide)
    return {"open-ssh": f"ssh_location {blocks_shown} lets {whole} reach the master's SSH port"}


def _read_keys(entry: str) -> Iterator[TeamKey]:
    """Yield the keys of one entry of the setting."""
    match = _NAMED.fullmatch(entry)
    name, given = (match["name"], match["rest"]) if match else (None, entry)
    is_line = any(word in TYPES for word in given.split())
    text = given if is_line or _PRIVATE in given else _read_key_file(given)
    where = "a key" if is_line else given
    if _PRIVATE in text:
        place = "" if text is given else f" in {shown(given)}"
        raise SettingsError(f"ssh_keys must be public keys, got a private key{place}")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines or (name and len(lines) > 1):
        allowed = "exactly one key" if name else "at least one key"
        raise SettingsError(f"ssh_keys: {shown(where)} must have {allowed}, got {len(lines)}")
    for line in lines:
        yield _parse_key(line, name=name, where=where)


def _read_key_file(file: str) -> str:
    path = os.path.expanduser(file)  # noqa: PTH111  (a Path raises OSError for a name that is too long)
    if not os.path.exists(path) and _KEY_PATH.search(file):  # noqa: PTH110
        place = "" if os.path.isabs(path) else f" in {os.getcwd()}, where cdk.json is"  # noqa: PTH109, PTH117
        raise SettingsError(f"ssh_keys: there is no file {shown(file)}{place}")
    require(os.path.isfile(path), "ssh_keys", file, "a file with public keys or a public key")  # noqa: PTH113
    try:
        with open(path, encoding="utf-8", errors="replace") as content:  # noqa: PTH123
            return content.read(_MAX_KEY_FILE)
    except OSError as error:
        raise SettingsError(f"ssh_keys must be readable, got {shown(file)}: {error.strerror}") from None


def _parse_key(line: str, *, name: str | None, where: str) -> TeamKey:
    """Parse a line in the format of authorized_keys, without options."""
    kind, _, rest = line.partition(" ")
    if kind not in TYPES and any(word in TYPES for word in rest.split()):
        raise SettingsError(f"ssh_keys: {shown(where)} must have keys without options, got {shown(kind)}")
    body, _, comment = rest.strip().partition(" ")
    if not name and not comment.strip():
        raise SettingsError(f"ssh_keys: {shown(where)} must have a name, as a comment after the key or as NAME= before")
    try:
        return check_key(TeamKey(type=kind, body=body, name=name or comment.strip()))
    except KeyListError as error:
        hint = "" if name or NAME.fullmatch(comment.strip()) else "; write NAME= before it"
        raise SettingsError(f"ssh_keys: {error}{hint}") from None


def _check_key_name(name: str) -> None:
    if _KEY_FILE.match(name):
        public = name if name.endswith(".pub") else "~/.ssh/id_ed25519.pub"
        raise SettingsError(
            f"key_name must be the name of an EC2 key pair, not a file, got {shown(name)}; to make a pair of a key: "
            f"aws ec2 import-key-pair --key-name NAME --public-key-material {shlex.quote(f'fileb://{public}')}"
        )
    # The CDK would treat "${Token[...]}" as one of its own placeholders.
    usable = len(name) <= 255 and name == name.strip() and name.isascii() and name.isprintable() and "${" not in name
    require(usable, "key_name", name, "the name of an EC2 key pair: up to 255 ASCII characters, no spaces around them")
