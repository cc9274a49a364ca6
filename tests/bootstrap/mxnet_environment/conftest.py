"""Provide a node that installs MXNet's environment."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from bootstrap.aws.clients import Clients
from bootstrap.contract import TABLE_KEY
from tests.bootstrap.mxnet_environment.mxnet_node import BUCKET, TABLE, MxnetNode
from tests.bootstrap.simulated_node import REGION


@pytest.fixture
def node(clients: Clients, tmp_path: Path) -> Iterator[Callable[[str], MxnetNode]]:
    with mock_aws():
        clients.s3.create_bucket(  # type: ignore[attr-defined]  # a client of boto3
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        clients.dynamodb.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": TABLE_KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": TABLE_KEY, "AttributeType": "S"}],
        )
        yield lambda name: MxnetNode(root=tmp_path / name, clients=clients)
