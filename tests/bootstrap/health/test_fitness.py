"""Check how an agent reacts to a failed check before its node is ready: a signal to the stack, or a replacement."""

import errno
from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from bootstrap.contract import HOST_KEY_FILE
from bootstrap.errors import CommandError
from bootstrap.files.paths import under_root
from bootstrap.health.checks import FAILURES_BEFORE_REPLACEMENT
from tests.bootstrap.health.simulated_gpus import (
    Gpus,
    master_with,
    ready_master,
    run_minutes,
    run_passes,
    run_past_the_deadline,
)
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import SimulatedNode


@pytest.fixture
def _stack_created(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a node to a cluster that was created long ago: CloudFormation accepts no signals."""

    def refuse(**_: str) -> None:
        message = "Stack digits is in CREATE_COMPLETE state and cannot be signaled"
        raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "SignalResource")

    monkeypatch.setattr(cluster.clients.cloudformation, "signal_resource", refuse)


def test_node_is_not_ready_while_a_gpu_is_missing(cluster: SimulatedCluster) -> None:
    gpus = Gpus(3)
    master = master_with(cluster, gpus)
    run_passes(cluster, master, 10)
    assert not master.agent.is_signal_settled
    assert cluster.signals == []
    gpus.count = 4
    run_passes(cluster, master, 4)
    assert cluster.signals == [("MasterGroup", "SUCCESS", master.instance_id)]


def test_missing_gpu_fails_the_deploy_without_a_replacement(cluster: SimulatedCluster) -> None:
    master = master_with(cluster, Gpus(3))
    run_passes(cluster, master, 3)
    cluster.clock.now += 600.0
    master.agent.run_pass()
    assert cluster.signals == [("MasterGroup", "FAILURE", f"{master.instance_id} gpus 3/4")]
    assert cluster.marked_unhealthy == []


def test_silent_master_fails_the_deploy(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    master = cluster.boot_node("master", answers_ssh=lambda _address: False)
    run_past_the_deadline(cluster, master)
    assert cluster.signals == [("MasterGroup", "FAILURE", f"{master.instance_id} deeplearning-master silent")]
    assert cluster.marked_unhealthy == []


@pytest.mark.usefixtures("_stack_created")
def test_broken_node_after_deploy_requests_replacement_once(cluster: SimulatedCluster) -> None:
    master = master_with(cluster, Gpus(3))
    run_past_the_deadline(cluster, master)
    assert cluster.marked_unhealthy == [master.instance_id]


@pytest.mark.usefixtures("_stack_created")
def test_agent_failure_after_deploy_requests_replacement(cluster: SimulatedCluster) -> None:
    master = master_with(cluster, Gpus(4))
    under_root(master.root, HOST_KEY_FILE).unlink()
    run_past_the_deadline(cluster, master)
    assert cluster.marked_unhealthy == [master.instance_id]


def throttled(**_: object) -> None:
    raise ClientError({"Error": {"Code": "ThrottlingException"}}, "Call")


@pytest.mark.usefixtures("_stack_created")
@pytest.mark.parametrize("service", ["dynamodb", "autoscaling", "ec2"])
def test_aws_outage_does_not_request_replacement(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    # A replacement would fail too; the node joins when AWS has recovered.
    master = master_with(cluster, Gpus(4))
    with monkeypatch.context() as outage:
        outage.setattr(getattr(cluster.clients, service), "_make_api_call", lambda *_: throttled())
        run_past_the_deadline(cluster, master)
    assert cluster.marked_unhealthy == []
    run_passes(cluster, master, 5, every=20.0)
    assert cluster.by_index() == {1: master.instance_id}


def test_nvidia_smi_failure_does_not_replace_ready_node(cluster: SimulatedCluster) -> None:
    # After a driver upgrade on all nodes, for example, every node would be replaced.
    ready_master(cluster, Gpus(4))

    def mismatch() -> str:
        raise CommandError("nvidia-smi -L exited 18: Driver/library version mismatch")

    restarted = cluster.boot_node("master", settings={"gpu_count": 4}, nvidia_smi=mismatch)
    run_minutes(cluster, restarted, FAILURES_BEFORE_REPLACEMENT + 2)
    assert cluster.marked_unhealthy == []


@pytest.mark.usefixtures("_stack_created")
def test_failed_replacement_request_is_retried_after_restart(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = Gpus(3)
    master = master_with(cluster, gpus)
    with monkeypatch.context() as outage:
        outage.setattr(cluster.clients.autoscaling, "set_instance_health", throttled)
        run_past_the_deadline(cluster, master)
    restarted = cluster.boot_node("master", settings={"gpu_count": 4}, nvidia_smi=gpus)
    run_passes(cluster, restarted, 3, every=20.0)
    assert cluster.marked_unhealthy == [master.instance_id]


def test_broken_node_with_a_read_only_disk_requests_its_replacement(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = Gpus(4)
    master = ready_master(cluster, gpus)
    gpus.count = 3

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr("bootstrap.files.node_files.NodeFiles.write", read_only)
    run_minutes(cluster, master, FAILURES_BEFORE_REPLACEMENT + 2)
    assert cluster.marked_unhealthy == [master.instance_id]


def waits_for_a_peer(cluster: SimulatedCluster) -> SimulatedNode:
    return master_with(cluster, Gpus(4), workers=1)


def waits_for_a_master(cluster: SimulatedCluster) -> SimulatedNode:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    return cluster.boot_node("worker")


def waits_for_the_masters_ssh(cluster: SimulatedCluster) -> SimulatedNode:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    return cluster.boot_node("master", answers_ssh=lambda _address: False)


WAITING = (waits_for_a_peer, waits_for_a_master, waits_for_the_masters_ssh)


@pytest.mark.usefixtures("_stack_created")
@pytest.mark.parametrize("made", WAITING)
def test_waiting_node_after_deploy_is_kept(
    cluster: SimulatedCluster, made: Callable[[SimulatedCluster], SimulatedNode]
) -> None:
    run_past_the_deadline(cluster, made(cluster))
    assert cluster.marked_unhealthy == []


@pytest.mark.parametrize("made", WAITING)
def test_stack_that_does_not_wait_gets_one_failure_signal(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, made: Callable[[SimulatedCluster], SimulatedNode]
) -> None:
    sentence: list[str] = []

    def refuse(**signal: str) -> None:
        sentence.append(signal["Status"])
        message = "Stack digits is in CREATE_COMPLETE state and cannot be signaled"
        raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "SignalResource")

    monkeypatch.setattr(cluster.clients.cloudformation, "signal_resource", refuse)
    run_past_the_deadline(cluster, made(cluster))
    assert sentence == ["FAILURE"]


def test_broken_optional_node_is_replaced_without_failure_signal(cluster: SimulatedCluster) -> None:
    gpus = Gpus(3)
    master = master_with(cluster, gpus, fails_deploy=False)
    run_past_the_deadline(cluster, master)
    assert (cluster.signals, cluster.marked_unhealthy) == ([], [master.instance_id])
    run_passes(cluster, master, 3, every=10.0)
    assert (cluster.signals, cluster.marked_unhealthy) == ([], [master.instance_id])


def test_waiting_optional_node_is_kept(cluster: SimulatedCluster) -> None:
    run_past_the_deadline(cluster, master_with(cluster, Gpus(4), workers=1, fails_deploy=False))
    assert (cluster.signals, cluster.marked_unhealthy) == ([], [])
