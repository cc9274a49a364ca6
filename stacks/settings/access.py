"""Define the settings for logging in to a cluster."""

import re
import shlex
from dataclasses import dataclass, field
from typing import Final

from stacks.settings.values import PARSER, Settings, SettingsError, ipv4_block, parse_list, require, shown

_KEY_FILE: Final = re.compile(r"~|\.{0,2}/|.*\.pub\Z")
WIDEST_SSH_PREFIX: Final = 8
"""Shortest prefix of a block that is not much of the internet."""
MAX_SSH_LOCATIONS: Final = 20
"""Each takes one rule of a security group, and the allow list 20 more, of the 60 that AWS allows by default."""


@dataclass(frozen=True, kw_only=True)
class AccessSettings(Settings):
    """The SSH key, and the way to the nodes: the master's SSH port, or Session Manager."""

    key_name: str | None = None
    """EC2 key pair for logging in; left out, nobody can log in over SSH."""
    ssh_location: str | tuple[str, ...] | None = field(default=None, metadata={PARSER: parse_list})
    """IPv4 block that may reach the master's SSH port, or a list of at most 20; left out, none may until
    ``dlcluster allow-ip``."""
    private: bool = False
    """With true no node has a public address or an open SSH port: logins go through Session Manager. Cannot be
    changed after creation."""

    def check(self) -> None:
        """Check the form of each; ``dlcluster preflight`` asks EC2 whether the key pair exists."""
        super().check()
        if self.key_name is not None:
            _check_key_name(self.key_name)
        for block in self.ssh_locations:
            ipv4_block("ssh_location", block)
        if (count := len(self.ssh_locations)) > MAX_SSH_LOCATIONS:
            raise SettingsError(f"ssh_location must name at most {MAX_SSH_LOCATIONS} blocks, got {count}")
        if self.ssh_locations:
            allowed = "left out with private: logins go through Session Manager, so no address reaches an SSH port"
            require(not self.private, "ssh_location", ",".join(self.ssh_locations), allowed)

    @property
    def ssh_locations(self) -> tuple[str, ...]:
        """Return the blocks of ``ssh_location``, each once."""
        given = self.ssh_location or ()
        return tuple(dict.fromkeys([given] if isinstance(given, str) else given))

    def warnings(self) -> dict[str, str]:
        """Warn of a cluster that nobody can log in to, or that much of the internet can reach."""
        found = super().warnings()
        if self.private:
            pass  # IAM says who may log in
        elif not self.ssh_locations:
            found["no-ssh"] = (
                "ssh_location is not set: the master accepts no SSH connection until dlcluster allow-ip adds an address"
            )
        else:
            found |= _warn_of_wide_blocks(self.ssh_locations)
        if self.key_name is None:
            found["no-key"] = "key_name is not set: nobody can log in over SSH"
        return found


def _warn_of_wide_blocks(blocks: tuple[str, ...]) -> dict[str, str]:
    wide = [each for each in blocks if ipv4_block("ssh_location", each).prefixlen < WIDEST_SSH_PREFIX]
    if not wide:
        return {}
    whole = "the whole internet" if "0.0.0.0/0" in wide else "much of the internet"
    named = "0.0.0.0/0" if "0.0.0.0/0" in wide else ",".join(wide)
    return {"open-ssh": f"ssh_location {named} lets {whole} reach the master's SSH port"}


def _check_key_name(name: str) -> None:
    if _KEY_FILE.match(name):
        public = name if name.endswith(".pub") else "~/.ssh/id_ed25519.pub"
        raise SettingsError(
            f"key_name must be the name of an EC2 key pair, not a file, got {shown(name)}; to make a pair of a key: "
            f"aws ec2 import-key-pair --key-name NAME --public-key-material {shlex.quote(f'fileb://{public}')}"
        )
    # The CDK would take "${Token[...]}" for a placeholder of its own.
    usable = len(name) <= 255 and name == name.strip() and name.isascii() and name.isprintable() and "${" not in name
    require(usable, "key_name", name, "the name of an EC2 key pair: up to 255 ASCII characters, no spaces around them")
