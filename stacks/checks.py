"""What each setting must be. Every refusal is one short line: what is wrong, what is allowed, what came.

Limits are AWS's own, so that nothing is refused after resources were made that could be refused before.
"""

import ipaddress
import re
import reprlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from bootstrap import contract
from stacks import instances

NETWORKS: Final = {
    "0.0.0.0/8": "EC2 refuses it",
    "127.0.0.0/8": "EC2 refuses it",
    "169.254.0.0/16": "EC2 refuses it",
    "172.17.0.0/16": "Docker's bridge has it on every node",
    "224.0.0.0/4": "EC2 refuses it",
}
"""Blocks that no cluster network may overlap (Amazon VPC User Guide, "IPv4 VPC CIDR blocks")."""

_AMI_ID: Final = re.compile(r"ami-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_SSM_PARAMETER: Final = re.compile(r"/[A-Za-z0-9_./-]{1,1010}")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
_KEY_FILE: Final = re.compile(r"~|\.{0,2}/|.*\.pub\Z")
_TYPE: Final = re.compile(r"[a-z0-9-]{1,30}\.[a-z0-9-]{1,30}")
_ZONE: Final = re.compile(r"[a-z]{2}(?:-[a-z0-9]{1,12}){1,6}-[0-9]{1,2}[a-z]")
_TAG_TEXT: Final = re.compile(r"[\w +\-=.:/@]*")
_BUCKET: Final = re.compile(r"(?!.*\.\.)(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CDK_BUCKET: Final = re.compile(r"cdk-[a-z0-9]+-assets-|cdktoolkit-")
"""Names that ``cdk bootstrap`` gives its staging buckets."""
_OTHER_BUCKETS: Final = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
"""Endings of what is no general purpose bucket: access points, directory and table buckets, with ARNs of other kinds
(Amazon S3 User Guide, "General purpose bucket naming rules")."""
_RESERVED_TAG_PREFIXES: Final = ("aws:", "deeplearning:")
_MOST_TAGS: Final = 40
"""AWS takes 50 a resource; the product and CloudFormation add some."""
ENGINES: Final = ("mxnet", "horovod")
"""What the nodes can be given besides PyTorch; of two, the later one includes the earlier."""
_RESERVED_ADDRESSES: Final = 5
"""AWS keeps five addresses of each subnet."""
_MOST_GPUS: Final = 16
_LONGEST_SHOWN: Final = 60


class SettingsError(Exception):
    """A setting that cannot be used; the message is one line for the user."""


def shown(value: object) -> str:
    """A value as a message shows it: quoted, on one line, and short however long it is."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _LONGEST_SHOWN
    short.maxlevel = 2
    text = short.repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def require(holds: object, name: str, value: object, allowed: str) -> None:
    """Refuse a value unless the condition holds."""
    if not holds:
        raise SettingsError(f"{name} must be {allowed}, got {shown(value)}")


def check_cluster_name(name: str) -> None:
    require(_NAME.fullmatch(name), "cluster_name", name, "a letter, then letters, digits and hyphens, at most 63")


def check_worker_count(count: int) -> None:
    """The table could not serve more agents (docs/healing.md)."""
    require(0 <= count <= contract.MOST_WORKERS, "worker_count", count, f"0 to {contract.MOST_WORKERS}")


def check_min_workers(count: int | None, *, worker_count: int) -> None:
    require(
        count is None or 0 <= count <= worker_count, "min_workers", count, f"0 to worker_count, which is {worker_count}"
    )


def check_key_name(name: str | None) -> None:
    if name is not None and _KEY_FILE.match(name):
        public = name if name.endswith(".pub") else "~/.ssh/id_ed25519.pub"
        raise SettingsError(
            f"key_name must be the name of an EC2 key pair, not a file, got {shown(name)}; to make a pair of a key: "
            f"aws ec2 import-key-pair --key-name NAME --public-key-material {shlex.quote(f'fileb://{public}')}"
        )
    # The CDK would take "${Token[...]}" for a placeholder of its own.
    usable = name is None or (
        len(name) <= 255 and name == name.strip() and name.isascii() and name.isprintable() and "${" not in name
    )
    require(usable, "key_name", name, "the name of an EC2 key pair: up to 255 ASCII characters, no spaces around them")


def check_ami(ami: str | None) -> None:
    known = ami is None or _AMI_ID.fullmatch(ami) or _SSM_PARAMETER.fullmatch(ami)
    require(known, "ami", ami, "ami- and 8 or 17 hex digits, or the name of an SSM parameter (/...)")


def check_instance_type(name: str, *, ami: str | None, gpu_count: int | None) -> None:
    """The catalogue knows the type, or the user says what the catalogue cannot."""
    known = instances.find(name)
    if reason := instances.why_refused(name, own_image=ami is not None):
        raise SettingsError(f"instance_type {shown(name)} {reason}")
    if gpu_count is not None:
        require(0 <= gpu_count <= _MOST_GPUS, "gpu_count", gpu_count, f"0 to {_MOST_GPUS}")
        if known is not None:
            require(gpu_count == known.gpus, "gpu_count", gpu_count, f"{known.gpus} or left out for {name}")
    if known is None and _TYPE.fullmatch(name) is None:
        require(False, "instance_type", name, f"like g6.xlarge{_or_meant(name)}")
    if ami is not None:
        return
    if instances.is_arm(name):
        raise SettingsError(f"instance_type {shown(name)} is ARM and the default AMI is x86_64, set ami to use it")
    if known is None and gpu_count is None:
        raise SettingsError(
            f"unknown instance_type {shown(name)}{_or_meant(name)} (any type goes with gpu_count or ami)"
        )
    if known is not None and known.ami_family is None:
        raise SettingsError(
            f"instance_type {name} needs ami: no current Deep Learning AMI drives its {known.gpu_model}; "
            f"the nearest current type is {known.successor}"
        )


def _or_meant(name: str) -> str:
    near = instances.nearest(name) if len(name) <= _LONGEST_SHOWN else None
    return f", did you mean {near}?" if near else ""


def check_root_volume(gib: int, *, ami_family: str | None) -> None:
    """EC2 makes no volume smaller than the image; of a user's own image the size is not known here."""
    require(8 <= gib <= 16384, "root_volume_gib", gib, "8 to 16384")
    least = instances.IMAGE_GIB[ami_family] if ami_family else 0
    require(gib >= least, "root_volume_gib", gib, f"at least {least}, the size of the AMI {ami_family}")


def check_zone(zone: str | None) -> None:
    require(zone is None or _ZONE.fullmatch(zone), "availability_zone", zone, "like us-east-1a")


def check_network(cidr: str, worker_count: int) -> None:
    """The two subnets are its halves, so that they cannot overlap."""
    block = ipv4_block("vpc_cidr", cidr)
    require(16 <= block.prefixlen <= 27, "vpc_cidr", cidr, "between /16 and /27")
    for taken, reason in NETWORKS.items():
        if block.overlaps(ipaddress.ip_network(taken)):
            raise SettingsError(f"vpc_cidr must not overlap {taken}, got {shown(cidr)}: {reason}")
    room = block.num_addresses // 2 - _RESERVED_ADDRESSES
    require(worker_count <= room, "worker_count", worker_count, f"at most {room} in vpc_cidr {cidr}")


def ipv4_block(name: str, text: str) -> ipaddress.IPv4Network:
    """Parse an address block, written the one way that AWS takes it."""
    try:
        block = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise SettingsError(f"{name} must be an IPv4 block like 203.0.113.0/24, got {shown(text)}") from None
    if not isinstance(block, ipaddress.IPv4Network):
        raise SettingsError(f"{name} must be an IPv4 block like 203.0.113.0/24, got the IPv6 block {shown(text)}")
    if text != str(block):
        raise SettingsError(f"{name} must be an IPv4 block, got {shown(text)}, did you mean {block}?")
    return block


def check_engines(engines: Sequence[str], *, instance_type: str) -> None:
    """MXNet has wheels for x86_64 alone; which Python the image has, the node finds out."""
    for engine in engines:
        require(engine in ENGINES, "engines", engine, " or ".join(ENGINES))
    if engines and instances.is_arm(instance_type):
        raise SettingsError(f"engines need an x86_64 instance_type, got {shown(instance_type)}, which is ARM")


def check_bucket(name: str | None) -> None:
    # Whoever may write into the CDK's own buckets writes the templates that CloudFormation runs as administrator.
    require(name is None or not _CDK_BUCKET.match(name), "bucket", name, "a bucket of your own, not one of the CDK's")
    usable = name is None or (_BUCKET.fullmatch(name) and not name.endswith(_OTHER_BUCKETS))
    require(
        usable, "bucket", name, "the name of a general purpose S3 bucket: 3 to 63 lowercase letters, digits, - and ."
    )


def check_tags(tags: Mapping[str, str]) -> None:
    require(len(tags) <= _MOST_TAGS, "tags", len(tags), f"at most {_MOST_TAGS}")
    seen: dict[str, str] = {}
    for key, value in tags.items():
        require(0 < len(key) <= 128, "the name of a tag", key, "1 to 128 characters")
        # CloudFormation takes no empty one on a stack (AWS CloudFormation API Reference, "Tag").
        require(0 < len(value) <= 256, f"tag {shown(key)}", value, "1 to 256 characters")
        for text in (key, value):
            require(_TAG_TEXT.fullmatch(text), f"tag {shown(key)}", text, "letters, digits, spaces and + - = . _ : / @")
        if key.lower().startswith(_RESERVED_TAG_PREFIXES):
            raise SettingsError(f"tag {shown(key)} has a reserved prefix: {' or '.join(_RESERVED_TAG_PREFIXES)}")
        # IAM compares the names of tags without regard to case.
        if other := seen.get(key.lower()):
            raise SettingsError(f"tags {shown(other)} and {shown(key)} differ only in case: use one of them")
        seen[key.lower()] = key
