"""Claim node indexes in one table from many processes: ``python -m tests.bootstrap.index_claims PROCESSES ROUNDS``.

Each process is a coordinator that knows only its own node, and tries until that node is a member. The table is moto's,
in the first process, which handles one request at a time, as DynamoDB does for one item. The requests use pipes instead
of HTTP, which would take nearly all of the time. Prints one line per round.
"""

import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, cast

import boto3
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID as ACCOUNT_ID
from moto.dynamodb.exceptions import TransactionCanceledException
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.utilities import dynamo_json_dump

from bootstrap.cluster.membership import Node, membership_after
from bootstrap.cluster.table import Table
from bootstrap.contract import TABLE_KEY
from tests.bootstrap.identities import NETWORKS, instance_id, public_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REGION = "eu-west-1"
TIMEOUT_S = 60.0
"""Longest wait for any result, in seconds."""
PAUSE_S = 0.05
"""Longest pause after a lost race, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The result of one process's round."""

    node_index: int
    lost: int
    """Races lost before the claim."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A call to DynamoDB that another process makes."""

    operation: str
    arguments: Mapping[str, Any]


class RemoteClient:
    """DynamoDB for ``bootstrap.cluster.table`` in a process that has only a pipe to it."""

    def __init__(self, client: "DynamoDBClient", first: Connection) -> None:
        self.exceptions = client.exceptions
        self._first = first

    def get_item(self, **arguments: Any) -> Any:
        return self._ask("GetItem", arguments)

    def transact_write_items(self, **arguments: Any) -> Any:
        answer = self._ask("TransactWriteItems", arguments)
        if "CancellationReasons" in answer:
            answer["Error"] = {"Code": "TransactionCanceledException", "Message": answer["Message"]}
            raise self.exceptions.TransactionCanceledException(answer, "TransactWriteItems")
        return answer

    def _ask(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        self._first.send(Request(operation=operation, arguments=arguments))
        return receive(self._first)


def receive(peer: Connection) -> Any:
    if not peer.poll(TIMEOUT_S):
        raise TimeoutError("the other process does not answer")
    return peer.recv()


def run(name: str, *, client: RemoteClient, first: Connection, desired_nodes: int) -> None:
    """Run one process: claim an index in each named table."""
    node = Node(instance_id=name, address=address_of(name), node_type="worker", host_key=public_key(name))
    while (table_name := receive(first)) is not None:
        table = Table(cast("DynamoDBClient", client), name=table_name, networks=NETWORKS)
        first.send(claim(node, table, desired_nodes=desired_nodes))


def address_of(name: str) -> str:
    number = int(name.removeprefix("i-"), 16)
    return f"10.0.{number // 256}.{number % 256}"


def claim(node: Node, table: Table, *, desired_nodes: int) -> Claim:
    lost = 0
    while True:
        seen = table.read_stored()
        wanted = membership_after(seen.membership, desired_nodes=desired_nodes, nodes=[node], departed=())
        if table.replace_membership(seen, wanted):
            member = wanted.member(node.instance_id)
            return Claim(node_index=0 if member is None else member.node_index, lost=lost)
        lost += 1
        time.sleep(random.uniform(0.0, PAUSE_S))


def serve_request(request: Request) -> Any:
    """Make the call on moto's table; return DynamoDB's answer."""
    backend = dynamodb_backends[ACCOUNT_ID][REGION]
    if request.operation == "GetItem":
        item = backend.get_item(request.arguments["TableName"], request.arguments["Key"])
        return {} if item is None else json.loads(dynamo_json_dump(item.describe_attrs(attributes=None)))
    try:
        backend.transact_write_items(request.arguments["TransactItems"])
    except TransactionCanceledException as error:
        return json.loads(error.description)
    return {}


def play(number: int, *, client: "DynamoDBClient", processes: Mapping[Connection, str]) -> dict[str, Any]:
    """Run one round: all processes start together on a new table."""
    name = f"round-{number}"
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": TABLE_KEY, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": TABLE_KEY, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for connection in processes:
        connection.send(name)
    # Each has asked before any gets an answer, so that all claim an index of the same membership.
    asked = {connection: receive(connection) for connection in processes}
    for connection, request in asked.items():
        connection.send(serve_request(request))
    claims: dict[str, Claim] = {}
    while len(claims) < len(processes):
        ready = wait([*processes], timeout=TIMEOUT_S)
        if not ready:
            raise TimeoutError(f"only {len(claims)} of {len(processes)} processes got an index")
        for connection in (connection for connection in processes if connection in ready):
            output = connection.recv()
            if isinstance(output, Claim):
                claims[processes[connection]] = output
            else:
                connection.send(serve_request(output))
    final = Table(client, name=name, networks=NETWORKS).read_membership()
    client.delete_table(TableName=name)
    return {
        "claimed": {name: claim.node_index for name, claim in claims.items()},
        "members": {member.instance_id: member.node_index for member in final.members},
        "generation": final.generation,
        "lost": sum(claim.lost for claim in claims.values()),
    }


def main(count: int, rounds: int) -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    client = boto3.client("dynamodb", region_name=REGION)
    client.exceptions  # noqa: B018  # its model is slow to read: once is enough for all processes
    fork = multiprocessing.get_context("fork")
    processes = {}
    for number in range(count):
        name, (ours, theirs) = instance_id(number), fork.Pipe()
        processes[ours] = name
        of_its_own = {"client": RemoteClient(client, theirs), "first": theirs, "desired_nodes": count + 1}
        fork.Process(target=run, args=(name,), kwargs=of_its_own, daemon=True).start()
        theirs.close()  # so that the end of a process is the end of its pipe
    with mock_aws():
        for number in range(rounds):
            print(json.dumps(play(number, client=client, processes=processes)), flush=True)
    for connection in processes:
        connection.send(None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
