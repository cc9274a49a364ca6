"""Check that forged records change no file of a node, and that the coordinator replaces them."""

import getpass
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings

from bootstrap import contract
from bootstrap.cluster.membership import Member, Membership
from bootstrap.cluster.record_validation import MAX_GENERATION, RecordError, check_address, parse_networks
from bootstrap.cluster.records import parse_membership, parse_node, parse_state
from bootstrap.files import environment, hosts, ssh, workers
from tests.bootstrap.forged_records import PHRASES, VALUES, forged_items
from tests.bootstrap.identities import NETWORKS, instance_id, public_key
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import TABLE, SimulatedNode

ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}"
NAMES = r"(?:deeplearning-master deeplearning-worker1|deeplearning-worker\d{1,4})"
KEY = r"ssh-ed25519 [A-Za-z0-9+/]{68}"


def accepted(item: dict[str, Any]) -> Membership | None:
    try:
        record = parse_membership(item, NETWORKS)
    except RecordError:
        return None
    members = tuple(map(Member.of, record.members))
    return Membership(generation=record.generation, desired_nodes=record.desired_nodes, members=members)


@given(forged_items())
def test_accepted_record_cannot_inject_lines(item: dict[str, Any]) -> None:
    membership = accepted(item)
    if membership is None:
        return
    present = membership.active_members
    assert re.fullmatch(rf"(?:{ADDRESS} {NAMES}\n){{{len(present)}}}", hosts.hosts_lines(present))
    known = rf"(?:{NAMES.replace(' ', ',')},{ADDRESS} {KEY}\n){{{len(present)}}}"
    assert re.fullmatch(known, ssh.known_hosts_lines(present))
    assert re.fullmatch(rf"(?:deeplearning-worker\d{{1,4}}\n){{{len(present)}}}", workers.workers_file(present))
    allowed = rf'(?:from="{ADDRESS}" {KEY} deeplearning-cdk\n)?'
    assert re.fullmatch(allowed, ssh.authorized_keys(membership.master))
    for member in present:
        facts = environment.VariableInputs(
            workers_count=len(present),
            gpu_count=8,
            bucket="bucket",
            instance_id=member.instance_id,
            scratch=None,
            shared=None,
        )
        values = environment.variables(facts)
        for text in (environment.profile_script(values), environment.environment_lines(values)):
            assert re.fullmatch(r"(?:(?:export )?DEEPLEARNING_[A-Z_]+=[a-z0-9/-]+\n){5}", text)
        assert re.fullmatch(
            r'\[Manager\]\nDefaultEnvironment=(?: ?"DEEPLEARNING_[A-Z_]+=[a-z0-9/-]+"){5}\n',
            environment.systemd_environment(values),
        )


@given(forged_items())
def test_accepted_membership_is_consistent(item: dict[str, Any]) -> None:
    membership = accepted(item)
    if membership is None:
        return
    by_index = [member.node_index for member in membership.members]
    assert by_index == sorted(set(by_index))
    assert len({member.instance_id for member in membership.members}) == len(by_index)
    assert len({member.address for member in membership.active_members}) == len(membership.active_members)
    assert all((member.node_index == 1) == (member.node_type == "master") for member in membership.members)


def test_generator_yields_acceptable_records() -> None:
    """Check that the two tests above have records to read."""
    assert find(forged_items(), lambda item: (found := accepted(item)) is not None and len(found.active_members) > 1)


@given(VALUES)
def test_accepted_address_is_within_the_networks(value: object) -> None:
    try:
        address = check_address(value, parse_networks("10.0.0.0/16"))
    except RecordError:
        return
    assert re.fullmatch(r"10\.0\.\d{1,3}\.\d{1,3}", address)
    assert address == value


@pytest.mark.parametrize("text", ["", "10.0.0.0", "10.0.0.1/16", "10.0.0.0/16,", "fd00::/8", "10.0.0.0/16\n", "0/0"])
def test_parse_networks_rejects_invalid_text(text: str) -> None:
    with pytest.raises(RecordError, match="networks must be 1 to 8 IPv4 blocks"):
        parse_networks(text)


@given(VALUES, VALUES)
def test_nodes_own_record_is_right_or_refused(key: object, draining: object) -> None:
    item: dict[str, Any] = {
        "id": {"S": "AROA:i-1"},
        "version": {"N": "2"},
        "instance_id": {"S": instance_id(1)},
        "node_type": {"S": "worker"},
        "host_key": {"S": key},
        "draining": {"BOOL": draining},
    }
    try:
        record = parse_node(item)
    except RecordError as error:
        assert str(error).isprintable()  # noqa: PT017  (whichever of the two it is)
        return
    assert re.fullmatch(KEY, record.host_key)
    assert type(record.draining) is bool


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"members": [{}]}', '{"generation": true}'])
def test_parse_state_rejects_invalid_text(text: str) -> None:
    with pytest.raises(RecordError):
        parse_state(text, NETWORKS)


# ---- in a cluster ----


FILES = (
    contract.HOSTS_FILE,
    contract.KNOWN_HOSTS_FILE,
    contract.WORKERS_FILE,
    contract.ENVIRONMENT_FILE,
    f"{contract.AUTHORIZED_KEYS_DIR}/",
)
FORGED: dict[str, dict[str, Any]] = {
    **{f"address {phrase!r}": {"address": phrase} for phrase in PHRASES[:6]},
    "index of another": {"node_index": 3},
    "index above all": {"node_index": 5000},
    "type": {"node_type": "root"},
    "key": {"host_key": f"{public_key(1)}\n* {public_key(2)}"},
    "instance": {"instance_id": "i-1"},
}


def texts(nodes: list[SimulatedNode]) -> list[str]:
    return [node.text(path) for node in nodes for path in FILES if not path.endswith("/")]


@pytest.fixture
def nodes(cluster: SimulatedCluster) -> list[SimulatedNode]:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    found = [cluster.boot_node("master"), cluster.boot_node("worker", 0), cluster.boot_node("worker", 1)]
    cluster.run(found, until=lambda: all(node.agent.is_signal_settled for node in found))
    return found


def item_of(cluster: SimulatedCluster, record_id: str) -> dict[str, Any]:
    key = {contract.TABLE_KEY: {"S": record_id}}
    return dict(cluster.clients.dynamodb.get_item(TableName=TABLE, Key=key)["Item"])


def put(cluster: SimulatedCluster, item: Mapping[str, Any]) -> None:
    cluster.clients.dynamodb.put_item(TableName=TABLE, Item=dict(item))


def forge(cluster: SimulatedCluster, **forged: object) -> None:
    """Forge the member at index 2 in the membership, in a new generation."""
    item = item_of(cluster, contract.MEMBERSHIP_ID)
    rows = [row | (forged if row["node_index"] == 2 else {}) for row in json.loads(item["members"]["S"])]
    put(cluster, item | {"members": {"S": json.dumps(rows)}, "generation": {"N": "900"}})
    put(cluster, item_of(cluster, contract.GENERATION_ID) | {"generation": {"N": "900"}})


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_workers_keep_their_files_and_the_coordinator_replaces_the_record(
    cluster: SimulatedCluster, nodes: list[SimulatedNode], forged: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    by_index, right = cluster.by_index(), texts(nodes)
    forge(cluster, **forged)
    for _ in range(3):
        for worker in nodes[1:]:
            worker.agent.run_pass()
    assert texts(nodes) == right
    kept = [message for message in caplog.messages if message.startswith("keeping the last good membership")]
    assert len(kept) == 2, "one line a worker"
    cluster.clock.now += 20.0
    cluster.run(nodes, until=lambda: cluster.table.read_stored().error is None)
    assert cluster.by_index() == by_index
    assert texts(nodes) == right
    # Every node follows the next change.
    generation = cluster.table.read_generation()
    cluster.run(
        nodes,
        until=lambda: all(json.loads(n.text(contract.NODE_STATE_FILE))["generation"] == generation for n in nodes),
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_node_indexes_stay_when_the_coordinator_began_after_the_forgery(
    cluster: SimulatedCluster, nodes: list[SimulatedNode], restarted: bool
) -> None:
    # A restarted agent knows the indexes from its node's state; one on a new machine, from the valid members.
    cluster.terminate(cluster.by_index()[2])
    nodes[1] = cluster.boot_replacement("worker", of=nodes[1:])
    cluster.run(nodes, until=lambda: nodes[1].instance_id in cluster.by_index().values())
    by_index = cluster.by_index()
    forge(cluster, address="$(touch marker)")
    if not restarted:
        (nodes[0].root / contract.NODE_STATE_FILE.lstrip("/")).unlink()
    nodes[0] = cluster.boot_node("master")
    cluster.run(nodes, until=lambda: cluster.table.read_stored().error is None and len(cluster.by_index()) == 3)
    assert cluster.by_index() == by_index


def test_well_formed_forged_membership_moves_no_index(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    by_index = cluster.by_index()
    item = item_of(cluster, contract.MEMBERSHIP_ID)
    rows = json.loads(item["members"]["S"])
    for row in rows:
        row["node_index"] = {1: 1, 2: 3, 3: 2}[row["node_index"]]
    put(cluster, item | {"members": {"S": json.dumps(rows)}, "generation": {"N": str(MAX_GENERATION)}})
    cluster.clock.now += 20.0
    cluster.run(nodes, until=lambda: cluster.by_index() == by_index)
    assert cluster.table.read_stored().error is None


@pytest.mark.parametrize("value", [{"N": "-1"}, {"S": "$(touch marker)"}, {"N": "77"}], ids=str)
def test_bad_generation_record_does_not_stop_a_replacement(
    cluster: SimulatedCluster, nodes: list[SimulatedNode], value: dict[str, str]
) -> None:
    put(cluster, {"id": {"S": contract.GENERATION_ID}, "version": {"N": "2"}, "generation": value})
    cluster.terminate(cluster.by_index()[2])
    nodes[1] = cluster.boot_replacement("worker", of=nodes[1:])
    cluster.clock.now += 20.0
    cluster.run(nodes, until=lambda: nodes[1].agent.is_signal_settled)
    assert cluster.table.read_generation() == cluster.table.read_membership().generation


def test_two_records_of_300_kb_affect_their_nodes_only(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    # With both keys, the membership would exceed DynamoDB's largest item.
    by_index = cluster.by_index()
    for node_index in (2, 3):
        record_id = contract.node_record_id("AROAWORKER", by_index[node_index])
        put(cluster, item_of(cluster, record_id) | {"host_key": {"S": public_key(node_index) + "A" * 300_000}})
    master = contract.node_record_id("AROAMASTER", by_index[1])
    put(cluster, item_of(cluster, master) | {"host_key": {"S": public_key("new")}})
    cluster.clock.now += 20.0
    cluster.run(nodes, until=lambda: public_key("new") in nodes[0].text(contract.KNOWN_HOSTS_FILE))
    assert cluster.by_index() == by_index
    assert all(node.host_key in nodes[0].text(contract.KNOWN_HOSTS_FILE) for node in nodes[1:])


@pytest.mark.parametrize("role", ["AROAMASTER", "AROAWORKER"])
def test_node_overwrites_a_forgery_of_its_own_record(
    cluster: SimulatedCluster, nodes: list[SimulatedNode], role: str
) -> None:
    # Another process with the node's role may write a record that is valid on its own.
    index = 1 if role == "AROAMASTER" else 2
    node, record_id = nodes[index - 1], contract.node_record_id(role, cluster.by_index()[index])
    forged = {"host_key": {"S": public_key("forged")}, "ssh_key": {"S": public_key("forged too")}}
    put(cluster, item_of(cluster, record_id) | forged)
    cluster.clock.now += 20.0
    cluster.run(nodes, until=lambda: public_key("forged") in nodes[2].text(contract.KNOWN_HOSTS_FILE))
    cluster.clock.now += 60.0
    cluster.run(nodes, until=lambda: node.host_key in nodes[2].text(contract.KNOWN_HOSTS_FILE))
    assert public_key("forged too") not in nodes[2].text(f"{contract.AUTHORIZED_KEYS_DIR}/{getpass.getuser()}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(item=forged_items())
def test_coordinator_replaces_any_membership_record(
    cluster: SimulatedCluster, nodes: list[SimulatedNode], item: dict[str, Any]
) -> None:
    by_index = cluster.by_index()
    put(cluster, item | {"id": {"S": contract.MEMBERSHIP_ID}})
    cluster.clock.now += 20.0
    cluster.run(nodes, until=lambda: cluster.table.read_stored().error is None and cluster.by_index() == by_index)
