"""What an agent touches, and the ways to the rest of the cluster that it finds there."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bootstrap.aws.clients import Clients
from bootstrap.aws.elastic_ip import StableAddress
from bootstrap.aws.imds import Identity, Outlook
from bootstrap.aws.log_shipping import LogShipper
from bootstrap.aws.signals import SIGNALLED_FILE, Signals
from bootstrap.cluster.coordinator import Coordinator
from bootstrap.cluster.draining import Leaving
from bootstrap.cluster.follower import Follower
from bootstrap.cluster.poll_interval import Turn
from bootstrap.cluster.table import Table
from bootstrap.config import NodeConfig
from bootstrap.contract import MASTER
from bootstrap.files.node_files import Actions, place, read_state

RANDOM: Final = random.SystemRandom()
"""Spreads the polls of nodes that started at the same moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What the agent touches: a test has another of each."""

    root: Path
    actions: Actions
    identify: Callable[[], Identity]
    outlook: Callable[[], Outlook]
    connect: Callable[[str], Clients]
    shipper: LogShipper
    nvidia_smi: Callable[[], str | None]
    resolve: Callable[[str], str]
    """Address of a host name, or OSError."""
    answers_ssh: Callable[[str], bool]
    """Whether an address has an SSH server."""
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = lambda: RANDOM.uniform(0.75, 1.25)
    chance: Callable[[], float] = RANDOM.random


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """The node's ways to the rest of the cluster, there once AWS has given it credentials."""

    identity: Identity
    table: Table
    follower: Follower
    signals: Signals
    leaving: Leaving
    coordinator: Coordinator | None
    """Only on the master."""
    address: StableAddress | None
    """Only on a master that has one."""


def link(config: NodeConfig, world: World, *, identity: Identity, clients: Clients) -> Links:
    """Make the links of one node."""
    networks = config.cluster_networks
    table = Table(clients.dynamodb, name=config.table, networks=networks)
    is_master = config.node_type == MASTER
    return Links(
        identity=identity,
        table=table,
        follower=Follower(table, turn=Turn(world.chance), monotonic=world.monotonic),
        signals=Signals(
            clients.cloudformation,
            target=config.signal_target,
            instance_id=identity.instance_id,
            sent_file=place(world.root, SIGNALLED_FILE),
        ),
        leaving=Leaving(
            lambda: clients.autoscaling,
            group=config.group,
            instance_id=identity.instance_id,
            monotonic=world.monotonic,
        ),
        coordinator=Coordinator(
            config,
            instance_id=identity.instance_id,
            table=table,
            autoscaling=clients.autoscaling,
            ec2=clients.ec2,
            remembered=read_state(world.root, instance_id=identity.instance_id, networks=networks),
        )
        if is_master
        else None,
        address=StableAddress(
            clients.ec2,
            address=config.address,
            allocation_id=config.address_allocation,
            instance_id=identity.instance_id,
            monotonic=world.monotonic,
        )
        if is_master and config.address is not None and config.address_allocation is not None
        else None,
    )
