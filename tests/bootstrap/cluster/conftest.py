"""Provide a table in moto, and one whose answers the test defines."""

from collections.abc import Iterator

import pytest
from botocore.stub import Stubber

from bootstrap.cluster.table import Table
from tests.bootstrap.cluster.table_records import StubbedTable
from tests.bootstrap.identities import NETWORKS
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import TABLE


@pytest.fixture
def table(cluster: SimulatedCluster) -> Table:
    return Table(cluster.clients.dynamodb, name=TABLE, networks=NETWORKS)


@pytest.fixture
def stubbed(cluster: SimulatedCluster) -> Iterator[StubbedTable]:
    waits: list[float] = []
    with Stubber(cluster.clients.dynamodb) as stubber:
        table = Table(cluster.clients.dynamodb, name=TABLE, networks=NETWORKS, sleep=waits.append)
        yield StubbedTable(table=table, stubber=stubber, waits=waits)
