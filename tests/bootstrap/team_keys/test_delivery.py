"""Check that the keys in the tags of the master's group reach every running node, and are removed again."""

from collections.abc import Mapping

import pytest

from bootstrap.cluster.record_validation import RecordError
from bootstrap.contract import GENERATION_ID, MEMBERSHIP_ID, TABLE_KEY, TEAM_KEYS_DIR
from bootstrap.team_keys.keys import TAG, parse, to_tags
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER, TABLE, SimulatedNode, config_values
from tests.bootstrap.team_keys.team_public_keys import ED25519, ED25519_FINGERPRINT, RSA

FILE = f"{TEAM_KEYS_DIR}/{config_values()['default_user']}"
ANNA, BOB = f"{ED25519} anna", f"{RSA} bob"


def deploy(cluster: SimulatedCluster, tags: Mapping[str, str], *, without: Mapping[str, str] | None = None) -> None:
    """Change tags of the master's group, like a deploy."""

    def rows(found: Mapping[str, str]) -> list[dict[str, object]]:
        group = {"ResourceId": f"{CLUSTER}-master", "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
        return [{"Key": key, "Value": value, **group} for key, value in found.items()]

    client = cluster.clients.autoscaling
    if gone := {key: value for key, value in (without or {}).items() if key not in tags}:
        client.delete_tags(Tags=rows(gone))  # type: ignore[arg-type]
    if tags:
        client.create_or_update_tags(Tags=rows(tags))  # type: ignore[arg-type]


@pytest.fixture
def nodes(cluster: SimulatedCluster) -> list[SimulatedNode]:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    nodes = [cluster.boot_node("master"), cluster.boot_node("worker")]
    cluster.run(nodes, until=lambda: all(team_keys_of(node) == "" for node in nodes))
    return nodes


def team_keys_of(node: SimulatedNode) -> str | None:
    file = node.root / FILE.lstrip("/")
    return file.read_text() if file.exists() else None


def test_keys_are_added_and_removed_on_running_nodes(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    both, one = to_tags(parse(f"{ANNA} {BOB}")), to_tags(parse(BOB))
    deploy(cluster, both)
    cluster.run(nodes, until=lambda: all(team_keys_of(node) == f"{ANNA}\n{BOB}\n" for node in nodes))
    deploy(cluster, one, without=both)
    cluster.run(nodes, until=lambda: all(team_keys_of(node) == f"{BOB}\n" for node in nodes))
    for node in nodes:
        ended = {call for call in node.system.calls if call.startswith("end-logins")}
        assert ended == {f"end-logins {ED25519_FINGERPRINT}"}
    deploy(cluster, {}, without=one)
    cluster.run(nodes, until=lambda: all(team_keys_of(node) == "" for node in nodes))


def test_keys_stay_while_tags_change_one_by_one(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    deploy(cluster, to_tags(parse(ANNA)))
    cluster.run(nodes, until=lambda: all(team_keys_of(node) == f"{ANNA}\n" for node in nodes))
    deploy(cluster, {TAG: to_tags(parse(BOB))[TAG]})
    cluster.clock.now += 60
    for node in nodes:
        node.agent.run_pass()
    assert [team_keys_of(node) for node in nodes] == [f"{ANNA}\n"] * 2


def forge(cluster: SimulatedCluster, keys: str, *, generation: int) -> None:
    """Write keys into the membership, as any process on the master can."""
    dynamodb = cluster.clients.dynamodb
    for record_id in (MEMBERSHIP_ID, GENERATION_ID):
        item = dynamodb.get_item(TableName=TABLE, Key={TABLE_KEY: {"S": record_id}})["Item"]
        forged = {**item, "generation": {"N": str(generation)}, "team_keys": {"S": keys}}
        dynamodb.put_item(TableName=TABLE, Item=forged)


def test_forged_key_is_removed_by_the_masters_next_pass(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    _, worker = nodes
    forge(cluster, f"{ANNA}\ncommand", generation=1000)
    with pytest.raises(RecordError, match="name of a key must be"):
        cluster.table.read_membership()
    worker.agent.run_pass()
    assert team_keys_of(worker) == ""
    forge(cluster, ANNA, generation=1001)
    worker.agent.run_pass()
    assert team_keys_of(worker) == f"{ANNA}\n"
    cluster.clock.now += 60
    cluster.run(nodes, until=lambda: all(team_keys_of(node) == "" for node in nodes))
    assert cluster.table.read_membership().team_keys == ""
