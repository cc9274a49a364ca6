"""Define the settings for the user's own resources that nodes may use: buckets, secrets, keys and policies."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bootstrap.contract import SECRETS_FORMS, SECRETS_PATTERN
from stacks.settings.base import Settings, SettingsError, require
from stacks.settings.parsing import PARSER, parse_list
from stacks.settings.storage import StorageSettings, check_bucket_name

READS: Final = ("s3:GetObject",)
"""Actions that nodes may perform on the objects of a bucket."""
WRITES: Final = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
"""Further actions with ``:rw``."""
_WRITABLE: Final = ":rw"
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.'()-][A-Za-z0-9!_.'()/=+@&,-]{0,500}")
"""Matches a prefix without IAM's wildcards and variables."""
_KEY: Final = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]{1,64}")
_KEY_FORM: Final = "ARNs of KMS keys like arn:aws:kms:REGION:ACCOUNT:key/ID"
_POLICY: Final = re.compile(r"arn:aws[a-z-]*:iam::(?:aws|[0-9]{12}):policy/[A-Za-z0-9+=,.@_/-]{1,512}")
_MAX_POLICIES: Final = 10
"""Number of managed policies that a role accepts by default (IAM User Guide, "IAM object quotas")."""
_MAX_BUCKETS: Final = 20
"""Number of buckets for which a role's inline policies have room: 10,240 characters ("IAM object quotas")."""
_REFERENCE: Final = re.compile(SECRETS_PATTERN, re.ASCII)
_MAX_SECRETS: Final = 20
"""Number of secrets for which the inline policies have room in addition to the buckets."""
_ADMINISTRATORS: Final = ("AdministratorAccess", "IAMFullAccess", "PowerUserAccess")
_FULL_ACCESS: Final = "FullAccess"
"""Part of the names of AWS's policies that allow everything in one service."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataBucket:
    """A bucket, or its part below a prefix, that nodes may read."""

    name: str
    prefix: str = ""
    """Prefix without a trailing slash; empty for the complete bucket."""
    is_writable: bool = False

    @classmethod
    def parse(cls, text: str) -> "DataBucket":
        """Parse ``name``, ``name/prefix`` or either with ``:rw``."""
        path = text.removesuffix(_WRITABLE)
        name, _, prefix = path.removeprefix("s3://").partition("/")
        return cls(name=name, prefix=prefix.rstrip("/"), is_writable=path != text)

    @property
    def objects(self) -> str:
        """Return the part of the objects' ARN after ``s3:::``."""
        return f"{self.name}/{self.prefix}/*" if self.prefix else f"{self.name}/*"

    def __str__(self) -> str:
        return f"{self.name}/{self.prefix}" if self.prefix else self.name


@dataclass(frozen=True, kw_only=True)
class DataSettings(StorageSettings):
    """The user's own data, which nodes reach with their roles."""

    data_buckets: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """S3 buckets that nodes may read: ``name`` or ``name/prefix``, and with ``:rw`` at the end also write."""
    data_keys: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """ARNs of KMS keys that nodes may use through S3: those of ``data_buckets``, and former ones of ``kms_key``."""
    policy_arns: tuple[str, ...] = field(default=(), metadata={PARSER: parse_list})
    """ARNs of managed policies to attach to the nodes' roles, for what else jobs need of AWS."""

    def check(self) -> None:
        """Check the form of buckets, keys and policies; ``dlcluster preflight`` asks AWS whether they exist."""
        super().check()
        if (count := len(self.data_buckets)) > _MAX_BUCKETS:
            raise SettingsError(f"data_buckets must name at most {_MAX_BUCKETS} buckets, got {count}")
        for text, bucket in zip(self.data_buckets, self.buckets, strict=True):
            check_bucket_name("data_buckets", bucket.name)
            allowed = "name or name/prefix, with :rw to write, and without * or ?"
            require(not bucket.prefix or _PREFIX.fullmatch(bucket.prefix), "data_buckets", text, allowed)
        for key in self.data_keys:
            require(_KEY.fullmatch(key), "data_keys", key, _KEY_FORM)
        for arn in self.policy_arns:
            require(
                _POLICY.fullmatch(arn), "policy_arns", arn, "ARNs of managed policies like arn:aws:iam::aws:policy/X"
            )
        maximum = _MAX_POLICIES
        require(len(self.policy_arns) <= maximum, "policy_arns", len(self.policy_arns), f"at most {maximum} policies")

    def warnings(self) -> dict[str, str]:
        """Warn of policies that make every job an administrator, or let it do everything in a service."""
        warnings = super().warnings()
        names = [arn.rpartition("/")[2] for arn in self.policy_arns]
        if wide := ", ".join(name for name in names if name in _ADMINISTRATORS):
            warnings["wide-policy"] = f"policy_arns {wide} makes every job on the nodes an administrator of the account"
        full = [name for name in names if _FULL_ACCESS in name and name not in _ADMINISTRATORS]
        if full:
            message = "lets every job on the nodes read, change and delete everything in that service"
            warnings["full-access-policy"] = f"policy_arns {', '.join(full)} {message}"
        return warnings

    @property
    def buckets(self) -> tuple[DataBucket, ...]:
        """Return the buckets, parsed."""
        return tuple(map(DataBucket.parse, self.data_buckets))


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
            require(_REFERENCE.fullmatch(text), "secrets", text, SECRETS_FORMS)
        require(len(self.secrets) <= _MAX_SECRETS, "secrets", len(self.secrets), f"at most {_MAX_SECRETS} secrets")
        for key in self.secret_keys:
            require(_KEY.fullmatch(key), "secret_keys", key, _KEY_FORM)
        require(bool(self.secrets) or not self.secret_keys, "secret_keys", self.secret_keys, "set with secrets")

    @property
    def secret_parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return tuple(self._found("parameter"))

    @property
    def managed_secrets(self) -> tuple[str, ...]:
        """Return the names and ARNs of Secrets Manager's secrets."""
        return tuple(self._found("secret"))

    def _found(self, group: str) -> Iterator[str]:
        for text in self.secrets:
            match = _REFERENCE.fullmatch(text)
            if match is not None and match[group]:
                yield match[group]
