"""Define and parse the node's configuration, a small JSON file.

The stack renders it into the user data, which writes it before the agent starts.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast, get_args

from bootstrap.cluster.record_validation import Networks, RecordError, parse_networks
from bootstrap.contract import MASTER, WORKER, NodeType
from bootstrap.errors import ConfigError

CONFIG_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalTarget:
    """The resource that this node signals."""

    region: str
    stack_id: str
    signal_resource: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeConfig:
    """Values that the stack gives to a node, which discovers everything else itself.

    The stack fills it at synthesis, so text may be a CDK token; numbers and ``networks`` may not.
    """

    version: int = CONFIG_VERSION
    cluster_name: str
    """Prefix of the names of the cluster's Auto Scaling groups, and value of their cluster tag."""
    region: str
    node_type: NodeType
    group: str
    """Name of this node's Auto Scaling group."""
    stack_id: str
    """ARN of the stack. IAM would match a name to every stack that ever had it (``stack/NAME/*``)."""
    signal_resource: str
    """Logical ID of that group."""
    fails_deploy: bool
    """True if the deploy fails without this node."""
    min_nodes: int | None
    """Number of nodes, including the master, that must be present before a node is ready; None for all of them."""
    master_trains: bool
    """True if jobs also run on the master."""
    gpu_count: int | None
    """GPUs of this node; None if unknown."""
    worker_gpu_count: int | None
    """GPUs of a worker; None if unknown."""
    efa_interfaces: int
    """Elastic Fabric Adapters that the node was launched with; 0 for none."""
    address: str | None
    """The master's Elastic IP; None on a worker."""
    address_allocation: str | None
    """EC2's allocation ID of that address."""
    table: str
    networks: str
    """CIDR blocks, separated by commas, that contain every node's address."""
    log_group: str
    bucket: str
    """Bucket named by DEEPLEARNING_BUCKET."""
    master_role_id: str
    worker_role_id: str
    mxnet_environment: str | None
    """Name of the MXNet environment to provide (bootstrap.mxnet_environment.recipe.CONTENTS); None without the setting
    ``frameworks``."""
    shared_storage: str | None
    """Setting of that name: ``efs``, ``efs:ID`` or ``lustre:ID``; None for no shared storage."""
    shared_storage_resource: str | None
    """Logical ID of the file system that the stack creates; its ID is unknown when this configuration is written."""
    setup: str | None
    """S3 URL of the archive with the user's setup; None without one."""
    setup_sha256: str | None
    """SHA-256 of that archive."""
    setup_timeout_s: int | None
    """Deadline for a setup, in seconds, after which it is ended and has failed."""
    default_user: str
    """Login user of the machine image, who owns the workers file."""
    bootstrap_timeout_s: int
    """Seconds after which a node that is not ready signals a failure."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if type(value) not in _types(field.type) or value == "":
                raise ConfigError(f"{field.name} must be {_KINDS[_types(field.type)[0]]}, got {value!r}")
        if self.version != CONFIG_VERSION:
            raise ConfigError(f"version must be {CONFIG_VERSION}, got {self.version}")
        if self.node_type not in (MASTER, WORKER):
            raise ConfigError(f"node_type must be {MASTER} or {WORKER}, got {self.node_type!r}")
        for name, minimum in (
            ("bootstrap_timeout_s", 1),
            ("min_nodes", 1),
            ("gpu_count", 0),
            ("worker_gpu_count", 0),
            ("setup_timeout_s", 1),
            ("efa_interfaces", 0),
        ):
            number = getattr(self, name)
            if number is not None and number < minimum:
                raise ConfigError(f"{name} must be at least {minimum}, got {number}")
        try:
            parse_networks(self.networks)
        except RecordError as error:
            raise ConfigError(str(error)) from error
        if (self.address is None) != (self.address_allocation is None):
            raise ConfigError("address and address_allocation must be set together or not at all")
        if len({value is None for value in (self.setup, self.setup_sha256, self.setup_timeout_s)}) > 1:
            raise ConfigError("setup, setup_sha256 and setup_timeout_s must be set together or not at all")
        if (self.shared_storage == "efs") != (self.shared_storage_resource is not None):
            raise ConfigError("shared_storage_resource must be set with shared_storage efs, and only then")

    @property
    def signal_target(self) -> SignalTarget:
        """Return the resource that this node signals."""
        return SignalTarget(region=self.region, stack_id=self.stack_id, signal_resource=self.signal_resource)

    @property
    def cluster_networks(self) -> Networks:
        """Return the networks, parsed."""
        return parse_networks(self.networks)

    @property
    def trains(self) -> bool:
        """Return True if jobs run on this node."""
        return self.master_trains or self.node_type == WORKER

    def role_id(self, node_type: NodeType) -> str:
        """Return the unique ID of the IAM role of a node type."""
        return self.master_role_id if node_type == MASTER else self.worker_role_id


_KINDS: Final[Mapping[object, str]] = {int: "a whole number", str: "text", bool: "true or false"}


def _types(annotation: object) -> tuple[object, ...]:
    """Return the types that an annotation allows, NoneType last."""
    return (str,) if annotation is NodeType else get_args(annotation) or (annotation,)


def parse_config(text: str) -> NodeConfig:
    """Parse the configuration. Raises ConfigError, which names the first bad key."""
    values = _json_object(text)
    names = [field.name for field in fields(NodeConfig)]
    for key in values:
        if key not in names:
            nearest = difflib.get_close_matches(key, names, n=1)
            hint = f", did you mean {nearest[0]}" if nearest else ""
            raise ConfigError(f"unknown key {key!r}{hint}")
    missing = [name for name in names if name not in values]
    if missing:
        raise ConfigError(f"missing key {missing[0]!r}")
    return NodeConfig(**cast("dict[str, Any]", values))


def parse_signal_target(text: str) -> SignalTarget | None:
    """Return the resource to signal a bad configuration to, if that part can be read."""
    try:
        values = _json_object(text)
    except ConfigError:
        return None
    if values.get("fails_deploy") is False:
        return None
    region, stack, resource = (values.get(key) for key in ("region", "stack_id", "signal_resource"))
    if isinstance(region, str) and isinstance(stack, str) and isinstance(resource, str):
        return SignalTarget(region=region, stack_id=stack, signal_resource=resource)
    return None


def _json_object(text: str) -> Mapping[str, object]:
    try:
        values: object = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"configuration must be JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"configuration must be a JSON object, got {type(values).__name__}")
    return cast("dict[str, object]", values)
