"""Define the settings for logging in to a cluster."""

import re
import shlex
from dataclasses import dataclass
from typing import Final

from stacks.settings.values import Settings, SettingsError, ipv4_block, require, shown

_KEY_FILE: Final = re.compile(r"~|\.{0,2}/|.*\.pub\Z")
_WIDEST_SSH_PREFIX: Final = 8


@dataclass(frozen=True, kw_only=True)
class AccessSettings(Settings):
    """The SSH key, and the way to the nodes: the master's SSH port, or Session Manager."""

    key_name: str | None = None
    """EC2 key pair for logging in; left out, nobody can log in over SSH."""
    ssh_location: str | None = None
    """IPv4 block that may reach the master's SSH port; left out, none may."""
    private: bool = False
    """With true no node has a public address or an open SSH port: logins go through Session Manager. Cannot be
    changed after creation."""

    def check(self) -> None:
        """Check the form of each; ``dlcluster preflight`` asks EC2 whether the key pair exists."""
        super().check()
        if self.key_name is not None:
            _check_key_name(self.key_name)
        if self.ssh_location is not None:
            ipv4_block("ssh_location", self.ssh_location)
            allowed = "left out with private: logins go through Session Manager, so no address reaches an SSH port"
            require(not self.private, "ssh_location", self.ssh_location, allowed)

    def warnings(self) -> dict[str, str]:
        """Warn of a cluster that nobody can log in to, or that much of the internet can reach."""
        found = super().warnings()
        if self.private:
            pass  # IAM says who may log in
        elif self.ssh_location is None:
            found["no-ssh"] = "ssh_location is not set: the master accepts no SSH connection"
        elif self.ssh_location == "0.0.0.0/0":
            found["open-ssh"] = "ssh_location 0.0.0.0/0 lets the whole internet reach the master's SSH port"
        elif ipv4_block("ssh_location", self.ssh_location).prefixlen < _WIDEST_SSH_PREFIX:
            found["open-ssh"] = (
                f"ssh_location {self.ssh_location} lets much of the internet reach the master's SSH port"
            )
        if self.key_name is None:
            found["no-key"] = "key_name is not set: nobody can log in over SSH"
        return found


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
