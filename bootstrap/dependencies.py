"""Define the agent's dependencies; build a node's session, health checks and record from them."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from bootstrap.aws.auto_scaling import GroupRequests
from bootstrap.aws.clients import Clients
from bootstrap.aws.elastic_ip import ElasticIp
from bootstrap.aws.imds import Identity
from bootstrap.aws.log_shipping import LogShipper
from bootstrap.aws.signals import SIGNALED_FILE, StackSignal
from bootstrap.cluster.coordinator import Coordinator
from bootstrap.cluster.follower import Follower, ReadSlot
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import Table
from bootstrap.cluster.termination_notice import InstanceMetadata, TerminationHandler
from bootstrap.config import NodeConfig
from bootstrap.contract import MASTER, SETUP_FAILED, node_record_id
from bootstrap.files.node_files import AgentSystem, read_node_state, user_permissions
from bootstrap.files.paths import under_root
from bootstrap.files.ssh_keys import delete_cluster_key, ensure_cluster_key, read_host_key
from bootstrap.health.checks import HealthChecks
from bootstrap.health.gpus import GpuCounter
from bootstrap.jobs.rank_grace import longest_grace_s
from bootstrap.shared_storage.lookup import FileSystemLookup

RANDOM: Final = random.SystemRandom()
"""Source of random pauses, which spread the polls of nodes that started together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentDependencies:
    """Functions and clients that are injected into the agent; tests replace each."""

    root: Path
    system: AgentSystem
    identify: Callable[[], Identity]
    read_metadata: Callable[[], InstanceMetadata]
    connect: Callable[[str], Clients]
    shipper: LogShipper
    nvidia_smi: Callable[[], str | None]
    resolve: Callable[[str], str]
    """Function that returns the address of a host name. Raises OSError."""
    answers_ssh: Callable[[str], bool]
    """Function that returns True if an SSH server answers at an address."""
    gpu_percent: Callable[[], int | None]
    """Function that returns the utilization of the busiest GPU in percent; None without one. Raises CommandError."""
    broadcast_to_terminals: Callable[[str], None]
    """Function that writes a line to every terminal. Raises CommandError."""
    utc_now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    release: str = ""
    """Release that the agent runs (contract.RELEASE_FIELD); empty for code that is not from a bundle."""
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = lambda: RANDOM.uniform(0.75, 1.25)
    random: Callable[[], float] = RANDOM.random


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSession:
    """Identity and clients of a node, available once the instance has credentials."""

    identity: Identity
    table: Table
    follower: Follower
    stack_signal: StackSignal
    own_group: GroupRequests
    """The Auto Scaling group that this node belongs to."""
    termination: TerminationHandler
    coordinator: Coordinator | None
    """On the master only."""
    elastic_ip: ElasticIp | None
    """On the master only, if the cluster has an Elastic IP."""


def create_cluster_session(
    config: NodeConfig, dependencies: AgentDependencies, *, identity: Identity, clients: Clients
) -> ClusterSession:
    """Build the session of one node."""
    networks = config.cluster_networks
    table = Table(clients.dynamodb, name=config.table, networks=networks)
    own_group = GroupRequests(lambda: clients.autoscaling, group=config.group, instance_id=identity.instance_id)
    is_master = config.node_type == MASTER
    return ClusterSession(
        identity=identity,
        table=table,
        follower=Follower(table, read_slot=ReadSlot(dependencies.random), monotonic=dependencies.monotonic),
        stack_signal=StackSignal(
            clients.cloudformation,
            target=config.signal_target,
            instance_id=identity.instance_id,
            sent_file=under_root(dependencies.root, SIGNALED_FILE),
        ),
        own_group=own_group,
        termination=TerminationHandler(
            own_group,
            instance_id=identity.instance_id,
            monotonic=dependencies.monotonic,
            longest_grace_s=lambda: longest_grace_s(dependencies.root, config.default_user),
        ),
        coordinator=Coordinator(
            config,
            instance_id=identity.instance_id,
            table=table,
            autoscaling=clients.autoscaling,
            ec2=clients.ec2,
            last_known=read_node_state(dependencies.root, instance_id=identity.instance_id, networks=networks),
            monotonic=dependencies.monotonic,
            shared_storage=FileSystemLookup(config, clients, monotonic=dependencies.monotonic).find,
        )
        if is_master
        else None,
        elastic_ip=ElasticIp(
            clients.ec2,
            address=config.address,
            allocation_id=config.address_allocation,
            instance_id=identity.instance_id,
            monotonic=dependencies.monotonic,
        )
        if is_master and config.address is not None and config.address_allocation is not None
        else None,
    )


def create_health_checks(config: NodeConfig, dependencies: AgentDependencies, *, gpus: GpuCounter) -> HealthChecks:
    """Build the health checks of one node."""
    return HealthChecks(
        root=dependencies.root,
        expected_gpus=config.gpu_count,
        count_gpus=gpus.count_or_none,
        expected_efa=config.efa_interfaces,
        resolve=dependencies.resolve,
        answers_ssh=dependencies.answers_ssh,
    )


def build_own_record(
    config: NodeConfig, dependencies: AgentDependencies, *, instance_id: str, draining: bool, mount: str, setup: str
) -> NodeRecord:
    """Make this node's keys if it has none, and return its record.

    Only a master has the cluster's key; on a worker, delete the copy that came with its image. Like a draining node, a
    node whose setup has failed is in neither the hosts nor the workers file.
    """
    return NodeRecord(
        record_id=node_record_id(config.role_id(config.node_type), instance_id),
        instance_id=instance_id,
        node_type=config.node_type,
        host_key=read_host_key(dependencies.root),
        ssh_key=_ensure_own_cluster_key(config, dependencies, instance_id),
        draining=draining or setup.startswith(SETUP_FAILED),
        mount=mount,
        setup=setup,
        release=dependencies.release,
    )


def _ensure_own_cluster_key(config: NodeConfig, dependencies: AgentDependencies, instance_id: str) -> str:
    if config.node_type != MASTER:
        delete_cluster_key(dependencies.root)
        return ""
    user = user_permissions(config.default_user)
    return ensure_cluster_key(dependencies.root, instance_id=instance_id, user=user, system=dependencies.system)
