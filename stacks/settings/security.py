"""Define the settings for security: logins, secrets, and what a security review requests.

A review requests the user's own key, flow logs, and rules for IAM roles.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bootstrap.contract import SECRETS_FORMS, SECRETS_PATTERN
from bootstrap.team_keys.keys import NAME, TYPES, KeyListError, TeamKey, check_key, check_team_keys
from stacks.settings.base import Settings, SettingsError, require, shown
from stacks.settings.naming import NamingSettings
from stacks.settings.nodes import CapacitySettings
from stacks.settings.parsing import PARSER, parse_cidr, parse_list
from stacks.settings.storage import KEY_ARN, KEY_ARN_FORM, DataSettings

_KEY_FILE: Final = re.compile(r"~|\.{0,2}/|.*\.pub\Z")
_KEY_PATH: Final = re.compile(r"\A[^\s]*/|\.pub\Z")
"""Matches text that can only be meant as a file's path."""
_NAMED: Final = re.compile(rf"(?P<name>{NAME.pattern})=(?P<rest>.+)", re.DOTALL)
_PRIVATE_KEY_LINE: Final = "PRIVATE KEY-----"
_MAX_KEY_FILE: Final = 64 * 1024
WIDEST_SSH_PREFIX: Final = 8
"""Shortest prefix of a block that does not cover much of the internet."""
MAX_SSH_LOCATIONS: Final = 20
"""Maximum number of blocks. AWS allows 60 rules in a security group by default: each block needs one rule, and the
allow list needs 20."""
_SECRET_REFERENCE: Final = re.compile(SECRETS_PATTERN, re.ASCII)
_MAX_SECRETS: Final = 20
"""Number of secrets for which the inline policies have room in addition to the buckets."""
_KMS_KEY: Final = re.compile(
    r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/(?:mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)
_KMS_KEY_FORM: Final = "the ARN of a KMS key like arn:aws:kms:REGION:ACCOUNT:key/ID"
_IAM_NAME_CHARACTER: Final = r"[A-Za-z0-9+=,.@_-]"
_BOUNDARY: Final = re.compile(
    rf"{_IAM_NAME_CHARACTER}{{1,128}}|arn:aws[a-z-]*:iam::(?:aws|[0-9]{{12}}):policy/[A-Za-z0-9+=,.@_/-]+"
)
_ROLE_PREFIX: Final = re.compile(rf"[A-Za-z]{_IAM_NAME_CHARACTER}{{0,37}}")
_MAX_ROLE_NAME: Final = 64
"""Longest role name in characters ("IAM and AWS STS quotas", IAM User Guide)."""
_MAX_ROLE_NAME_END: Final = len("-ap-southeast-1-flow-logs")
"""Number of characters after the cluster's name in the longest role name."""
_HARDENED_POLICIES: Final = 4
"""Number of the user's policies for which a role has room beside the five with its own permissions, and a sixth while
``kms_key`` changes."""
_HARDENED_BUCKETS: Final = 10
"""Number of buckets for which a managed policy has room, unless their names are long (stacks/cluster_role.py)."""


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
            allowed = (
                "left out with private: logins go through Session Manager, so no address reaches an SSH port "
                "(-c ssh_location= clears one from ~/.cdk.json)"
            )
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


@dataclass(frozen=True, kw_only=True)
class SecretsSettings(Settings):
    """The secrets of the user's account that nodes may read."""

    secrets: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """Secrets that nodes may read for ``launch --secret``: ``ssm:PARAMETER``, ``secretsmanager:NAME`` or its ARN."""
    secret_keys: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """ARNs of your own KMS keys with which ``secrets`` are encrypted; AWS's own keys need none."""

    def check(self) -> None:
        """Check the form of secrets and keys; only the start of a job shows whether they exist."""
        super().check()
        for text in self.secrets:
            require(_SECRET_REFERENCE.fullmatch(text), "secrets", text, SECRETS_FORMS)
        require(len(self.secrets) <= _MAX_SECRETS, "secrets", len(self.secrets), f"at most {_MAX_SECRETS} secrets")
        for key in self.secret_keys:
            require(KEY_ARN.fullmatch(key), "secret_keys", key, KEY_ARN_FORM)
        require(bool(self.secrets) or not self.secret_keys, "secret_keys", self.secret_keys, "set with secrets")

    @property
    def secret_parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return tuple(self._references("parameter"))

    @property
    def managed_secrets(self) -> tuple[str, ...]:
        """Return the names and ARNs of Secrets Manager's secrets."""
        return tuple(self._references("secret"))

    def _references(self, group: str) -> Iterator[str]:
        for text in self.secrets:
            match = _SECRET_REFERENCE.fullmatch(text)
            if match is not None and match[group]:
                yield match[group]


@dataclass(frozen=True, kw_only=True)
class SecuritySettings(DataSettings, AccessSettings, CapacitySettings, NamingSettings):
    """Protection of the cluster beyond what every cluster has."""

    hardened: bool = False
    """With true the cluster passes the checks of NIST 800-53, PCI DSS and HIPAA: it sets ``private`` and, in a VPC
    that the stack creates, ``flow_logs``, and needs ``kms_key``."""
    kms_key: str | None = None
    """ARN of your own KMS key for disks, table, bucket, logs and a file system that the stack creates. Default:
    AWS's keys. A file system's key cannot be changed after creation."""
    flow_logs: bool = False
    """With true the addresses and ports of all connections in the VPC that the stack creates are logged for 14 days."""
    permissions_boundary: str | None = None
    """Name or ARN of the managed policy that limits every role of the stack."""
    role_name_prefix: str | None = None
    """Start of the names of the stack's roles. Default: CloudFormation names them. Cannot be changed after
    creation."""

    def check(self) -> None:
        """Check the form of each, and that nothing contradicts ``hardened``."""
        super().check()
        require(self.kms_key is None or _KMS_KEY.fullmatch(self.kms_key), "kms_key", self.kms_key, _KMS_KEY_FORM)
        allowed = "left out with vpc_id: the VPC is not the stack's, add a flow log to it yourself"
        require(not self.flow_logs or self.vpc_id is None, "flow_logs", self.flow_logs, allowed)
        boundary, prefix = self.permissions_boundary, self.role_name_prefix
        allowed = "the name or the ARN of a managed policy"
        require(boundary is None or _BOUNDARY.fullmatch(boundary), "permissions_boundary", boundary, allowed)
        if prefix is not None:
            maximum = _MAX_ROLE_NAME - _MAX_ROLE_NAME_END - len(self.cluster_name)
            usable = _ROLE_PREFIX.fullmatch(prefix) and len(prefix) <= maximum
            allowed = f"a letter, then letters, digits and + = , . @ _ -, at most {max(maximum, 0)} beside cluster_name"
            require(usable, "role_name_prefix", prefix, allowed)
        if self.hardened:
            self._check_hardened()

    def _check_hardened(self) -> None:
        require(self.private, "private", self.private, "true with hardened")
        require(self.kms_key is not None, "kms_key", self.kms_key, f"set with hardened, {_KMS_KEY_FORM}")
        require(self.flow_logs or self.vpc_id is not None, "flow_logs", self.flow_logs, "true with hardened")
        # A file system that the stack creates would be in no backup plan, which the checks require.
        allowed = "none or a file system of your own with hardened, in your backup plan"
        require(not self.creates_file_system, "shared_storage", self.shared_storage, allowed)
        for name, values, maximum in (
            ("policy_arns", self.policy_arns, _HARDENED_POLICIES),
            ("data_buckets", self.data_buckets, _HARDENED_BUCKETS),
        ):
            require(len(values) <= maximum, name, len(values), f"at most {maximum} with hardened")

    def check_region(self, region: str) -> None:
        """Refuse a key of another region once the deploy's region is known."""
        super().check_region(region)
        key = self.kms_key
        require(key is None or key.split(":")[3] == region, "kms_key", key, f"a key of {region}")


def hardened_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that ``hardened`` sets unless the context gives them."""
    return {"private": True} | ({} if settings.get("vpc_id") else {"flow_logs": True})


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
    text = given if is_line or _PRIVATE_KEY_LINE in given else _read_key_file(given)
    where = "a key" if is_line else given
    if _PRIVATE_KEY_LINE in text:
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
