"""What the user wants: the settings of a cluster and their defaults.

They come from the ``"cluster"`` object of cdk.json, each overridable with ``-c name=value``.
Imports no aws_cdk, so that the command line can check settings without Node.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stacks import checks, instances
from stacks.checks import SettingsError, require, shown

__all__ = ["SETTINGS", "ClusterProps", "SettingsError", "shown"]

_CDK_OWN_KEYS: Final = frozenset({"acknowledged-issue-numbers", "cdk-migrate", "cli-telemetry"})
_CDK_OWN_PREFIXES: Final = ("@", "aws:", "aws-cdk:")
_OF_THE_CLI: Final = {
    "region": "the region is that of AWS_REGION or of the profile, as in: AWS_REGION=eu-west-1 cdk deploy",
    "profile": "the profile is AWS_PROFILE, as in: AWS_PROFILE=team cdk deploy",
    "account": "the account is that of the credentials (AWS_PROFILE)",
}
"""What no setting says, as the AWS command line and SDKs have it by other means."""
_WIDEST_SSH_PREFIX: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterProps:
    """The settings of one cluster."""

    cluster_name: str = "deeplearning"
    """Name of the stack and value of the cluster tag; two clusters in one region need two names."""
    instance_type: str = "g6.xlarge"
    """Type of every node; the default is the least expensive current type with a GPU (NVIDIA L4)."""
    gpu_count: int | None = None
    """GPUs of a node; given, a type that the catalogue does not know is taken, with the default AMI.
    Left out, the catalogue's figure."""
    worker_count: int = 1
    """Nodes besides the master, which trains too; 0 makes a cluster of the master alone."""
    min_workers: int | None = None
    """Workers without which the deploy fails; the others may come later and join by themselves, and
    broken ones are replaced. Left out, all are needed and a broken one fails the deploy at once."""
    key_name: str | None = None
    """EC2 key pair for logging in; left out, nobody can log in over SSH."""
    ssh_location: str | None = None
    """IPv4 block that may reach the master's SSH port; left out, nothing may."""
    ami: str | None = None
    """``ami-...`` or the name of an SSM parameter, of an Ubuntu 22.04 or later; left out, the Deep
    Learning AMI for the type."""
    availability_zone: str | None = None
    """Zone of all nodes; left out, the region's first when it is looked up. A running cluster keeps it."""
    vpc_cidr: str = "10.0.0.0/16"
    """Addresses of the cluster's network, /16 to /27; halved into a public and a private subnet. A
    running cluster keeps it."""
    root_volume_gib: int = 150
    """Size of each node's root volume; at least that of the AMI's."""
    engines: tuple[str, ...] = ()
    """What the nodes get besides PyTorch: ``mxnet``, or ``horovod``, which is MXNet, Horovod and Open MPI;
    left out, nothing. Nodes launched from then on get it."""
    bucket: str | None = None
    """Name of an S3 bucket to use, such as one that an earlier cluster left; it stays as it is. Left out, the
    cluster makes one of its own. A running cluster keeps it."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Further tags for everything that can carry tags."""

    def __post_init__(self) -> None:
        """Refuse what AWS would refuse, before anything is created."""
        checks.check_cluster_name(self.cluster_name)
        checks.check_worker_count(self.worker_count)
        checks.check_min_workers(self.min_workers, worker_count=self.worker_count)
        checks.check_key_name(self.key_name)
        checks.check_ami(self.ami)
        checks.check_instance_type(self.instance_type, ami=self.ami, gpu_count=self.gpu_count)
        checks.check_root_volume(self.root_volume_gib, ami_family=self.ami_family)
        checks.check_zone(self.availability_zone)
        checks.check_network(self.vpc_cidr, self.worker_count)
        if self.ssh_location is not None:
            checks.ipv4_block("ssh_location", self.ssh_location)
        checks.check_engines(self.engines, instance_type=self.instance_type)
        checks.check_bucket(self.bucket)
        checks.check_tags(self.tags)

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> "ClusterProps":
        """Read the settings from the CDK's context: its ``cluster`` object, then single keys over it."""
        cluster = context.get("cluster")
        if cluster is None:
            cluster = {}
        if not isinstance(cluster, Mapping):
            raise SettingsError(f"cluster must be an object of settings, got {shown(cluster)}")
        single = {k: v for k, v in context.items() if k != "cluster" and not _belongs_to_cdk(k)}
        settings = {**cluster, **single}
        for key in settings:
            if key.isdecimal() and key in context:
                # What the CDK's command line makes of a list or a text.
                raise SettingsError(f'unknown setting {shown(key)}: the "context" of cdk.json must be an object')
            if key in _OF_THE_CLI:
                raise SettingsError(f"unknown setting {shown(key)}: {_OF_THE_CLI[key]}")
            if key not in SETTINGS:
                raise SettingsError(f"unknown setting {shown(key)}{_did_you_mean(key, SETTINGS)}")
        given: dict[str, Any] = {
            name: _parse(name, value) for name, value in settings.items() if value not in (None, "")
        }
        return cls(**given)

    @property
    def instance(self) -> instances.InstanceType | None:
        """The catalogue's entry of the instance type; None when only the user knows it."""
        return instances.find(self.instance_type)

    @property
    def gpus(self) -> int | None:
        """GPUs of a node; None when nobody has said so."""
        return self.gpu_count if self.instance is None else self.instance.gpus

    @property
    def needed_workers(self) -> int:
        """Workers without which the deploy fails."""
        return self.worker_count if self.min_workers is None else self.min_workers

    @property
    def ami_family(self) -> str | None:
        """Family of the Deep Learning AMI that the nodes get; None with the user's own ``ami``."""
        if self.ami is not None:
            return None
        return self.instance.ami_family if self.instance else instances.OPEN_DRIVER

    @property
    def ami_source(self) -> str:
        """Where the machine image comes from: ``ami``, or the SSM parameter of the family."""
        return self.ami or f"{instances.DEEP_LEARNING_AMIS}/{self.ami_family}/latest/ami-id"

    def check_region(self, region: str) -> None:
        """Refuse a zone of another region, once it is known where the cluster goes."""
        zone = self.availability_zone
        require(zone is None or zone.startswith(region), "availability_zone", zone, f"a zone of {region}")

    def warnings(self) -> Mapping[str, str]:
        """What the user should know before deploying: an id and a sentence each."""
        found: dict[str, str] = {}
        if self.ssh_location is None:
            found["no-ssh"] = "ssh_location is not set: the master accepts no SSH connection"
        elif self.ssh_location == "0.0.0.0/0":
            found["open-ssh"] = "ssh_location 0.0.0.0/0 lets the whole internet reach the master's SSH port"
        elif checks.ipv4_block("ssh_location", self.ssh_location).prefixlen < _WIDEST_SSH_PREFIX:
            found["open-ssh"] = (
                f"ssh_location {self.ssh_location} lets much of the internet reach the master's SSH port"
            )
        if self.key_name is None:
            found["no-key"] = "key_name is not set: nobody can log in over SSH"
        if self.instance is None and not instances.is_arm(self.instance_type):
            near = instances.nearest(self.instance_type)
            found["unknown-type"] = (
                f"instance_type {self.instance_type} is not in the catalogue{f' (nearest: {near})' if near else ''}: "
                "EC2 alone can say whether it exists and whether the AMI drives it"
            )
        elif self.instance is not None and self.instance.successor is not None:
            found["not-sold"] = (
                f"{self.instance_type} can hardly be bought any more; "
                f"the nearest current type is {self.instance.successor}"
            )
        if self.instance and self.ami_family and not instances.is_listed(self.instance, self.ami_family):
            found["not-listed"] = (
                f"{self.instance_type} is not on AWS's list for the AMI {self.ami_family}, which may not drive its "
                f"{self.instance.gpu_model}: set ami to an image that lists it if the nodes find no GPU"
            )
        if self.engines and self.gpus:
            found["engines-on-cpu"] = (
                "engines: MXNet is its CPU build, the only one that still installs; GPUs are for PyTorch alone"
            )
        return found


SETTINGS: Final = tuple(f.name for f in dataclasses.fields(ClusterProps))
_INTEGERS: Final = frozenset(f.name for f in dataclasses.fields(ClusterProps) if f.type in (int, int | None))


def _belongs_to_cdk(key: str) -> bool:
    # Feature flags (@aws-cdk/...), the CLI's own keys (aws:cdk:...) and cached look-ups
    # (ssm:account=...): a key given with -c cannot contain the = that each look-up has.
    return key in _CDK_OWN_KEYS or key.startswith(_CDK_OWN_PREFIXES) or (":" in key and "=" in key)


def _did_you_mean(word: str, candidates: Iterable[str]) -> str:
    names = list(candidates)
    plain = re.sub(r"[^a-z0-9]+", "_", word[:100].lower())
    close = difflib.get_close_matches(plain, names, n=1, cutoff=0.5)
    return f", did you mean {close[0]}?" if close else f", settings are {', '.join(names)}"


def _parse(name: str, value: Any) -> str | int | dict[str, str] | tuple[str, ...]:
    if name == "tags":
        return _parse_tags(value)
    if name == "engines":
        return _parse_engines(value)
    if name in _INTEGERS:
        return _parse_integer(name, value)
    require(isinstance(value, str), name, value, "text")
    return str(value)


def _parse_integer(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    # int() does not strip everything that str.strip() does.
    text = value.strip() if isinstance(value, str) else ""
    require(re.fullmatch(r"-?[0-9]{1,9}", text), name, value, "a whole number")
    return int(text)


def _parse_engines(value: Any) -> tuple[str, ...]:
    """Each once, in the order in which one builds on the other."""
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    require(isinstance(words, list), "engines", value, f"a list of {', '.join(checks.ENGINES)}, or text like a,b")
    for word in words:
        require(word in checks.ENGINES, "engines", word, " or ".join(checks.ENGINES))
    return tuple(engine for engine in checks.ENGINES if engine in words)


def _parse_tags(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        value = _tags_from_text(value)
    require(isinstance(value, Mapping), "tags", value, "an object of names and values, or k=v,k2=v2")
    for key, text in value.items():
        require(isinstance(text, str), f"tag {shown(key)}", text, "text")
    return dict(value)


def _tags_from_text(text: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_tags_from_pairs)
        except (ValueError, RecursionError):
            raise SettingsError(f"tags must be valid JSON or k=v,k2=v2, got {shown(text)}") from None
    pairs = [pair.partition("=") for pair in text.split(",")]
    require(all(equals for _, equals, _ in pairs), "tags", text, "JSON or k=v,k2=v2")
    return _tags_from_pairs([(key.strip(), value.strip()) for key, _, value in pairs])


def _tags_from_pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    tags: dict[str, Any] = {}
    for key, value in pairs:
        if key in tags:
            raise SettingsError(f"tag {shown(key)} must have one value, got {shown(tags[key])} and {shown(value)}")
        tags[key] = value
    return tags
