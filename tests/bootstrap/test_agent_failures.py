"""Test what the agent does about failures: its signals, its deadline, its log."""

import errno
import logging
import os
from collections.abc import Callable, Iterator

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from bootstrap import agent as agent_module
from bootstrap import contract
from bootstrap.aws.clients import Clients
from bootstrap.aws.imds import Identity
from bootstrap.aws.log_shipping import LogShipper
from bootstrap.errors import MetadataError
from bootstrap.files.paths import under_root
from tests.bootstrap.booted_cluster import all_ready, hosts_file, launch_nodes
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import LOG_GROUP, SimulatedNode


def test_failure_signal_counts_the_peers_and_the_agent_carries_on(cluster: SimulatedCluster) -> None:
    master, first, second = launch_nodes(cluster)
    for _ in range(3):
        for node in (master, first):
            node.agent.run_pass()
        cluster.clock.now += 2.0
    cluster.clock.now += 600.0
    first.agent.run_pass()
    assert cluster.signals == [("WorkerGroup", "FAILURE", f"{first.instance_id} peers 2/3 joined")]
    late = [master, first, second]
    cluster.run(late, until=lambda: all("deeplearning-worker3" in n.text(contract.HOSTS_FILE) for n in late))
    own = [signal for signal in cluster.signals if signal.unique_id.startswith(first.instance_id)]
    assert own == cluster.signals[:1]


@pytest.mark.parametrize(
    ("spoil", "slug"),
    [
        (lambda node: under_root(node.root, contract.HOST_KEY_FILE).unlink(), "no-host-key"),
        (lambda node: None, "no-membership"),
    ],
)
def test_failure_signal_names_what_is_missing(
    cluster: SimulatedCluster, spoil: Callable[[SimulatedNode], None], slug: str
) -> None:
    _, worker, _ = launch_nodes(cluster)
    spoil(worker)
    worker.agent.run_pass()
    assert not cluster.signals
    cluster.clock.now += 600.0
    worker.agent.run_pass()
    worker.agent.run_pass()
    assert cluster.signals == [("WorkerGroup", "FAILURE", f"{worker.instance_id} {slug}")]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("bootstrap.agent.create_cluster_session", "credentials-EIO"),
        ("bootstrap.agent.build_own_record", "host-key-EIO"),
        ("bootstrap.agent.NodeRecordWriter.publish", "table-EIO"),
        ("bootstrap.cluster.table.Table.read_stored", "table-EIO"),
        ("bootstrap.cluster.coordinator.describe_groups", "groups-EIO"),
        ("bootstrap.agent.create_node_file_writer", "files-EIO"),
        ("bootstrap.aws.elastic_ip.ElasticIp.associate", "address-EIO"),
        ("bootstrap.agent.MxnetEnvironmentMonitor.check", "mxnet-environment-EIO"),
        ("bootstrap.health.checks.HealthChecks.check_before_ready", "checks-EIO"),
        ("bootstrap.aws.signals.StackSignal.send_success", "signal-EIO"),
    ],
)
def test_failure_names_the_step_that_it_ended(
    cluster: SimulatedCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
    reason: str,
) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    master = cluster.boot_node("master", settings={"address": "203.0.113.2", "address_allocation": "eipalloc-1"})

    def break_(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("bootstrap.aws.elastic_ip.ElasticIp.associate", lambda *_: None)
    monkeypatch.setattr(broken, break_)
    for _ in range(2):  # The side tasks of the first pass must not change what the second reports.
        master.agent.run_pass()
    failures = [record.getMessage() for record in caplog.records if record.name == "bootstrap.failures"]
    assert failures == [f"{reason}: [Errno 5] Input/output error"]


def test_node_whose_signal_alone_fails_reports_no_failure_at_the_deadline(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    [master] = launch_nodes(cluster, workers=0)

    def unreachable(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    with monkeypatch.context() as patch:
        patch.setattr("bootstrap.aws.signals.StackSignal.send_success", unreachable)
        cluster.clock.now += 600.0
        master.agent.run_pass()
        assert not cluster.signals
    master.agent.run_pass()
    assert cluster.signals == [("MasterGroup", "SUCCESS", master.instance_id)]


def test_full_disk_delays_and_is_the_reason_at_the_deadline(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = launch_nodes(cluster, workers=0)
    with monkeypatch.context() as patch:

        def full(_descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "fsync", full)
        nodes[0].agent.run_pass()
        assert nodes[0].text(contract.HOSTS_FILE) == "127.0.0.1 localhost\n"
        cluster.clock.now += 600.0
        nodes[0].agent.run_pass()
        assert cluster.signals == [("MasterGroup", "FAILURE", f"{nodes[0].instance_id} disk-full")]
    cluster.clock.now += 20.0
    nodes[0].agent.run_pass()
    assert nodes[0].text(contract.HOSTS_FILE) == hosts_file(nodes)
    assert len(cluster.signals) == 1


def test_unknown_user_fails_at_once(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_user(_name: str) -> None:
        raise KeyError("no such user")

    nodes = launch_nodes(cluster, workers=0)
    monkeypatch.setattr("pwd.getpwnam", no_such_user)
    nodes[0].agent.run_pass()
    assert cluster.signals == [("MasterGroup", "FAILURE", f"{nodes[0].instance_id} bad-config")]


def test_restarted_agent_gets_no_new_deadline(cluster: SimulatedCluster) -> None:
    launch_nodes(cluster)
    cluster.clock.now += 599.0
    worker = cluster.boot_node("worker", 0)
    worker.agent.run_pass()
    assert not cluster.signals
    cluster.clock.now += 2.0
    cluster.boot_node("worker", 0).agent.run_pass()
    assert cluster.signals == [("WorkerGroup", "FAILURE", f"{worker.instance_id} no-membership")]


def test_failures_are_logged_at_start_and_end_and_slow_the_agent(
    cluster: SimulatedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    instance_id, address = cluster.instances("master")[0]
    errors: list[Exception] = [MetadataError("no answer")] * 3

    def identify() -> Identity:
        if errors:
            raise errors.pop()
        return Identity(instance_id=instance_id, address=address)

    credentials: list[Exception] = [NoCredentialsError()]

    def connect(_region: str) -> Clients:
        if credentials:
            raise credentials.pop()
        return cluster.clients

    node = cluster.boot_node("master", identify=identify, connect=connect)
    with caplog.at_level("INFO", logger="bootstrap"):
        waits = [node.agent.run_pass() for _ in range(5)]
    assert node.agent.is_signal_settled
    assert waits == [1.0, 2.0, 4.0, 8.0, 6.0]
    lines = [record.getMessage() for record in caplog.records if record.name == "bootstrap.failures"]
    assert lines == [
        "metadata-unreachable: no answer",
        "no-credentials: Unable to locate credentials",
        "recovered from no-credentials",
    ]


def test_throttled_call_is_named_in_the_failure_signal(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = launch_nodes(cluster, workers=0)

    def throttled(*_: object, **__: object) -> None:
        raise ClientError(
            {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "DescribeAutoScalingGroups"
        )

    monkeypatch.setattr("bootstrap.cluster.coordinator.describe_groups", throttled)
    cluster.clock.now += 600.0
    nodes[0].agent.run_pass()
    [(_, _, text)] = cluster.signals
    assert text == f"{nodes[0].instance_id} DescribeAutoScalingGroups-ThrottlingException"[:64]


@pytest.fixture
def words_before_signal(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the contents of the log group at the moment of a signal: a failed stack then removes the node."""
    found: list[str] = []

    def take_signal(**_: str) -> None:
        events = cluster.clients.logs.filter_log_events(logGroupName=LOG_GROUP)["events"]
        found.extend(event["message"] for event in events)

    monkeypatch.setattr(cluster.clients.cloudformation, "signal_resource", take_signal)
    return found


@pytest.fixture
def shipper(cluster: SimulatedCluster) -> Iterator[LogShipper]:
    """Return the shipper of an agent that logs as it does on a node."""
    shipper, log = LogShipper(monotonic=cluster.clock), logging.getLogger("bootstrap")
    log.addHandler(shipper)
    yield shipper
    log.removeHandler(shipper)


def test_trouble_is_in_the_log_group_before_the_failure_signal(
    cluster: SimulatedCluster, shipper: LogShipper, words_before_signal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_user(_name: str) -> None:
        raise KeyError("no such user")

    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    monkeypatch.setattr("pwd.getpwnam", no_such_user)
    cluster.boot_node("master", shipper=shipper).agent.run_pass()
    assert any(words.startswith("bad-config: default_user must be a user") for words in words_before_signal)


def test_missing_log_group_does_not_stop_the_agent(cluster: SimulatedCluster) -> None:
    cluster.clients.logs.delete_log_group(logGroupName=LOG_GROUP)
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    shipper = LogShipper(monotonic=cluster.clock)
    shipper.handle(logging.makeLogRecord({"msg": "a line that cannot be shipped"}))
    nodes = [cluster.boot_node("master", shipper=shipper)]
    cluster.run(nodes, until=all_ready(nodes))
    assert nodes[0].agent.run_pass() == agent_module.PASS_INTERVAL_S
