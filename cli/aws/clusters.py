"""Find clusters: CloudFormation stacks with a cluster's outputs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from bootstrap.cluster.record_validation import RELEASE, Networks, RecordError, parse_networks, shown
from bootstrap.contract import (
    ALLOW_LIST_OUTPUT,
    CAPACITY_BLOCK_OUTPUT,
    CLUSTER_NAME_OUTPUT,
    EXPIRES_OUTPUT,
    EXPIRY_ACTION_OUTPUT,
    KMS_KEY_OUTPUT,
    LOGIN_USER_OUTPUT,
    NETWORKS_OUTPUT,
    PRIVATE_OUTPUT,
    RELEASE_OUTPUT,
    SETUP_OUTPUT,
    SHARED_STORAGE_OUTPUT,
    STACK_DESCRIPTION,
    TABLE_OUTPUT,
)
from cli.aws.stack_history import describe_stack
from cli.errors import ClusterError, NoClusterError, SeveralClustersError
from cli.stack_states import explain

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackTypeDef


TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
TABLE_RULE: Final = "the name of a DynamoDB table, 3 to 255 letters, digits and _ - ."
_SETUP: Final = re.compile(r"(s3://[a-z0-9.-]+/[A-Za-z0-9._/-]+) ([0-9a-f]{64}) ([0-9]{1,6})")
_RULES: Final = (
    (CLUSTER_NAME_OUTPUT, re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}"), "a letter, then letters, digits and hyphens"),
    (TABLE_OUTPUT, TABLE, TABLE_RULE),
    (LOGIN_USER_OUTPUT, re.compile(r"[a-z_][a-z0-9_-]{0,31}"), "a user of the nodes"),
)
"""Outputs that end up on ssh's command line, each with the pattern and the description of valid values."""
_TRANSITIONS: Final = {
    "CREATE_IN_PROGRESS": "it is being created; dlcluster list shows when it is complete",
    "DELETE_IN_PROGRESS": "it is being deleted",
}
"""Description of what CloudFormation does to a stack that is not a cluster yet, or no longer one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A cluster, as the outputs of its stack describe it."""

    name: str
    stack_name: str
    table: str
    login_user: str
    networks_text: str | None
    """None if the stack is older than this output."""
    is_private: bool = False
    """True if logins go through Session Manager."""
    stack_status: str = ""
    created: str = ""
    """Time when the stack was created; ISO 8601, UTC."""
    expires: datetime | None = None
    """Time from which AWS pauses the cluster; None if it never does."""
    file_system: str = ""
    """ID of the file system that the nodes share; empty without one."""
    expiry_action: str = "pause"
    """``delete`` if AWS also deletes the stack afterwards."""
    setup: str | None = None
    """Output SETUP_OUTPUT; None without one."""
    release: str = ""
    """Release that new nodes run (contract.RELEASE_FIELD); empty if the stack does not say."""
    capacity_block: str | None = None
    """Output CAPACITY_BLOCK_OUTPUT; None without a Capacity Block."""
    allow_list: str | None = None
    """Output ALLOW_LIST_OUTPUT; None in a private cluster and in stacks older than this output."""
    kms_key: str | None = None
    """Output KMS_KEY_OUTPUT; None without a user's key."""

    @property
    def networks(self) -> Networks:
        """Return the networks that contain the nodes' addresses. Raises ClusterError."""
        if self.networks_text is None:
            raise ClusterError(f"stack {self.stack_name} has no output {NETWORKS_OUTPUT}: cdk deploy adds it")
        try:
            return parse_networks(self.networks_text)
        except RecordError as error:
            raise ClusterError(f"output {NETWORKS_OUTPUT} of stack {self.stack_name}: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class UnfinishedStack:
    """A cluster's stack without outputs: in its creation, after one that failed, or while an update is rolled back."""

    name: str
    status: str
    created: str


def find_stacks(cloudformation: "CloudFormationClient") -> "Iterator[Cluster | UnfinishedStack]":
    """Yield every cluster of the account and region, including incomplete ones."""
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            cluster = _cluster(stack)
            if cluster is not None:
                yield cluster
            elif stack.get("Description") == STACK_DESCRIPTION:
                yield UnfinishedStack(
                    name=stack["StackName"], status=stack["StackStatus"], created=_creation_time(stack)
                )


def find_clusters(cloudformation: "CloudFormationClient") -> Iterator[Cluster]:
    """Yield every complete cluster of the account and region."""
    return (stack for stack in find_stacks(cloudformation) if isinstance(stack, Cluster))


def _creation_time(stack: "StackTypeDef") -> str:
    from stacks.settings.parsing import format_utc  # here, as known-hosts, for which ssh waits, shows no time

    return format_utc(stack["CreationTime"])


def _cluster(stack: "StackTypeDef") -> Cluster | None:
    outputs = {out["OutputKey"]: out["OutputValue"] for out in stack.get("Outputs", [])}
    if not outputs.keys() >= {CLUSTER_NAME_OUTPUT, TABLE_OUTPUT, LOGIN_USER_OUTPUT}:
        return None
    return Cluster(
        name=outputs[CLUSTER_NAME_OUTPUT],
        stack_name=stack["StackName"],
        table=outputs[TABLE_OUTPUT],
        login_user=outputs[LOGIN_USER_OUTPUT],
        networks_text=outputs.get(NETWORKS_OUTPUT),
        is_private=outputs.get(PRIVATE_OUTPUT) == "true",
        stack_status=stack["StackStatus"],
        expires=_expires(outputs.get(EXPIRES_OUTPUT)),
        file_system=outputs.get(SHARED_STORAGE_OUTPUT, ""),
        expiry_action=outputs.get(EXPIRY_ACTION_OUTPUT, "pause"),
        created=_creation_time(stack),
        setup=outputs.get(SETUP_OUTPUT),
        release=release if RELEASE.fullmatch(release := outputs.get(RELEASE_OUTPUT, "")) else "",
        capacity_block=outputs.get(CAPACITY_BLOCK_OUTPUT),
        allow_list=outputs.get(ALLOW_LIST_OUTPUT),
        kms_key=outputs.get(KMS_KEY_OUTPUT),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployedSetup:
    """Setup that new nodes run."""

    url: str
    sha256: str
    timeout_s: int


def deployed_setup(cluster: Cluster) -> DeployedSetup:
    """Return the setup of the last deploy. Raises ClusterError if there is none."""
    if cluster.setup is None:
        raise ClusterError(f"cluster {cluster.name} has no setup: name one in cdk.json, then cdk deploy")
    match = _SETUP.fullmatch(cluster.setup)
    if match is None:
        allowed = "the URL of an S3 object, its SHA-256 and seconds"
        raise ClusterError(f"output {SETUP_OUTPUT} must be {allowed}, got {shown(cluster.setup)}")
    return DeployedSetup(url=match[1], sha256=match[2], timeout_s=int(match[3]))


def _expires(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
    except ValueError:
        return None


def check_outputs(cluster: Cluster) -> Cluster:
    """Return the cluster if its outputs are valid. Raises ClusterError."""
    values = (cluster.name, cluster.table, cluster.login_user)
    for (output, pattern, allowed), value in zip(_RULES, values, strict=True):
        if not pattern.fullmatch(value):
            raise ClusterError(f"output {output} of stack {cluster.stack_name} must be {allowed}, got {shown(value)}")
    return cluster


def _explain_unfinished(name: str, status: str, region: str) -> str:
    meaning = _TRANSITIONS.get(status) or explain(status, name=name, region=region)
    return meaning or f"dlcluster why --cluster {name} shows more"


def _reason_for_none(unfinished: Sequence[UnfinishedStack], region: str) -> str:
    """Return what follows "no cluster in REGION": what each cluster's stack is doing, or how to create one."""
    if not unfinished:
        return (
            " (--region or AWS_REGION selects another); cdk deploy creates one, "
            "dlcluster why --cluster NAME explains a failed deploy"
        )
    sentences = [
        f"stack {stack.name} is {stack.status}: {_explain_unfinished(stack.name, stack.status, region)}"
        for stack in unfinished
    ]
    return f"; {'; '.join(sentences)}"


def find_cluster(cloudformation: "CloudFormationClient", *, name: str | None, region: str) -> Cluster:
    """Return the cluster named `name`, or the only one. Raises ClusterError."""
    # Our stacks are named after their clusters.
    stack = describe_stack(cloudformation, name) if name is not None else None
    if stack is not None and (named := _cluster(stack)) is not None and named.name == name:
        return check_outputs(named)
    stacks = sorted(find_stacks(cloudformation), key=lambda stack: stack.name)
    clusters = [stack for stack in stacks if isinstance(stack, Cluster)]
    names = ", ".join(check_outputs(cluster).name for cluster in clusters)
    if stack is not None and name not in [cluster.name for cluster in clusters]:
        status = stack["StackStatus"]
        reason = _explain_unfinished(stack["StackName"], status, region)
        raise NoClusterError(
            f"no cluster {name!r} in {region}: a stack of that name exists in status {status}; {reason}"
        )
    if not clusters:
        unfinished = [stack for stack in stacks if isinstance(stack, UnfinishedStack)]
        raise NoClusterError(f"no cluster in {region}{_reason_for_none(unfinished, region)}")
    if name is None and len(clusters) > 1:
        raise SeveralClustersError(f"more than one cluster in {region}, choose with --cluster: {names}")
    chosen = [cluster for cluster in clusters if name in (None, cluster.name)]
    if not chosen:
        raise NoClusterError(f"no cluster {name!r} in {region}; clusters there: {names}")
    if len(chosen) > 1:
        same_name = ", ".join(cluster.stack_name for cluster in chosen)
        raise ClusterError(f"more than one stack in {region} has a cluster named {name}: {same_name}")
    return check_outputs(chosen[0])
