"""Test that faults reach a cluster's agents and that an outside observer sees the effects.

The tests leave the cluster unchanged.
"""

import re
import socket
from collections.abc import Callable, Iterator

import boto3
import pytest

from bootstrap.contract import AGENT_SERVICE, LOG_FILE
from local.chaos.observer import ClusterObserver
from local.chaos.plan import make_plan, node_target
from local.chaos.plan_runner import run_plan
from local.faults import Faults
from local.network.addresses import API_ADDRESS, API_PORT
from local.network.vpc_network import in_namespace
from tests.e2e.support.deployed_cluster import STACK, DeployedCluster, aliases
from tests.waiting import wait_until

TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 1.5
SEEN_S = 60.0
"""Seconds for the observer to see a fault and nothing else: on a busy machine, other logins may time out too. Far below
local.node.status_checks.IMPAIRED_S, after which a node that hangs is replaced."""
WORKER = "deeplearning-worker2"
MAIN_PROCESS = ("systemctl", "show", "--property=MainPID", "--value", AGENT_SERVICE)
FAULTS_THAT_KEEP_NODES = ("freeze", "partition-pair", "metadata-outage", "fill-disk", "kill-agent", "throttle")
"""Kinds of faults that leave every node in place."""


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults.current()
    yield faults
    faults.undo_all()


@pytest.fixture
def observer(cluster: DeployedCluster) -> ClusterObserver:
    return ClusterObserver.current(STACK, environment=cluster.user.environment)


def new_lines(faults: Faults, name: str) -> Callable[[], str]:
    """Return a function that reads the lines that a node's agent has logged from now on."""
    log = faults.node(name).path(LOG_FILE)
    start = log.stat().st_size
    return lambda: log.read_bytes()[start:].decode()


@pytest.mark.parametrize("alias", aliases())
def test_fault_name_resolves_to_the_node_that_answers(cluster: DeployedCluster, faults: Faults, alias: str) -> None:
    instance_id = cluster.on(alias, "cat /var/lib/cloud/data/instance-id")
    assert faults.node(alias).instance_id == instance_id
    assert faults.node(alias.removeprefix("deeplearning-")).instance_id == instance_id


def test_observer_agrees_on_a_healthy_cluster(cluster: DeployedCluster, observer: ClusterObserver) -> None:
    observation = observer.wait_for_agreement(TIMEOUT_S)
    assert observation.instances[1] == cluster.master["InstanceId"]
    assert set(observation.instances.values()) == set(cluster.addresses)
    assert sorted(observation.instances) == list(range(1, len(cluster.instances) + 1))
    assert observer.wait_for_agreement(TIMEOUT_S, previous=observation).instances == observation.instances


def test_observer_sees_a_partition_and_its_end(faults: Faults, observer: ClusterObserver) -> None:
    pair = {faults.node(name).instance_id for name in ("worker2", "worker3")}
    faults.partition("worker2", "worker3")

    def sees_only_the_partition() -> bool:
        found = observer.differences()
        struck = {line.split(": cannot log in")[0] for line in found}
        return struck == pair and all("timed out" in line for line in found)

    wait_until(sees_only_the_partition, "the observer to see only the partition", timeout_s=SEEN_S)
    with pytest.raises(TimeoutError, match=r"(?s)waited 0 s for the nodes to agree:\n.*cannot log in to"):
        observer.wait_for_agreement(0)
    faults.undo_all()
    observer.wait_for_agreement(TIMEOUT_S)


def test_observer_sees_a_frozen_node(faults: Faults, observer: ClusterObserver) -> None:
    frozen = faults.node(WORKER).instance_id
    faults.freeze(WORKER)

    def sees_only_that_node() -> bool:
        found = observer.differences()
        return bool(found) and all("log in to deeplearning-worker2" in line or frozen in line for line in found)

    wait_until(sees_only_that_node, "the observer to see only the frozen node", timeout_s=SEEN_S)
    faults.end_freeze(WORKER)
    observer.wait_for_agreement(TIMEOUT_S)


def test_observer_sees_an_extra_workers_line(faults: Faults, observer: ClusterObserver) -> None:
    workers = faults.node(WORKER).path("/opt/deeplearning/workers")
    right = workers.read_text()

    def sees_the_line() -> bool:
        # The agent's next pass rewrites the file, maybe before the observer has read it.
        workers.write_text(f"{right}deeplearning-worker9\n")
        return any("the workers file has" in line for line in observer.differences())

    wait_until(sees_the_line, "the observer to see the line", timeout_s=SEEN_S)
    workers.write_text(right)
    observer.wait_for_agreement(TIMEOUT_S)


def test_killed_agent_is_restarted(faults: Faults) -> None:
    node = faults.node(WORKER)
    before = node.run(*MAIN_PROCESS)
    faults.kill_agent(WORKER)
    wait_until(
        lambda: node.run(*MAIN_PROCESS).strip() not in (before.strip(), "0"),
        "the agent to start again",
        timeout_s=TIMEOUT_S,
    )


@pytest.mark.parametrize(
    ("fault", "code"),
    [("throttle", "ProvisionedThroughputExceededException"), ("api-errors", "InternalServerError")],
)
def test_refused_calls_are_logged_by_the_agent_of_one_node(
    cluster: DeployedCluster, faults: Faults, fault: str, code: str
) -> None:
    logged, others = new_lines(faults, WORKER), new_lines(faults, "worker3")
    cluster.user.run("local-aws", "fault", fault, "dynamodb", "--node", "worker2")
    boto3.client("dynamodb").list_tables()
    # Only a failed pass logs this prefix and, later, its recovery; a side task may log the code too.
    wait_until(lambda: f"-{code}: " in logged(), f"{code} in the agent's log", timeout_s=TIMEOUT_S)
    cluster.user.run("local-aws", "fault", "undo-all")
    wait_until(lambda: "recovered from" in logged(), "the agent to recover", timeout_s=TIMEOUT_S)
    assert code not in others()


def api_connection(name: str) -> str:
    """Return the error of a node's connection to AWS's API, or "connected"."""

    def connect() -> str:
        try:
            socket.create_connection((API_ADDRESS, API_PORT), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            return type(error).__name__
        return "connected"

    return in_namespace(name, connect)


def test_api_outage_affects_all_nodes_but_not_the_user(cluster: DeployedCluster, faults: Faults) -> None:
    logged = new_lines(faults, WORKER)
    faults.api_outage()
    assert {api_connection(name) for name in cluster.addresses} == {"TimeoutError"}
    faults.api_outage(refuse=True)
    assert {api_connection(name) for name in cluster.addresses} == {"ConnectionRefusedError"}
    boto3.client("ec2").describe_vpcs()
    wait_until(lambda: "table-unreachable" in logged(), "the agent to notice", timeout_s=TIMEOUT_S)
    faults.end_api_outage()
    assert {api_connection(name) for name in cluster.addresses} == {"connected"}
    wait_until(lambda: "recovered from" in logged(), "the agent to recover", timeout_s=TIMEOUT_S)


def test_api_outage_of_one_node_affects_no_other(cluster: DeployedCluster, faults: Faults) -> None:
    struck = faults.node(WORKER).instance_id
    faults.api_outage(WORKER)
    lost = {name for name in cluster.addresses if api_connection(name) != "connected"}
    assert lost == {struck}
    faults.end_api_outage(WORKER)
    assert api_connection(struck) == "connected"


def test_cluster_recovers_from_a_plan_of_faults(faults: Faults, observer: ClusterObserver) -> None:
    before, printed = observer.wait_for_agreement(TIMEOUT_S), list[str]()
    targets = [node_target(number) for number in before.instances]
    plan = make_plan(7, count=8, within_s=8, targets=targets, kinds=FAULTS_THAT_KEEP_NODES, durations_s=(1, 3))
    run_plan(plan, faults, instances=lambda: faults.instances(STACK), log=printed.append)
    assert sum(line.endswith("begins") for line in printed) == len(plan.faults)
    observer.wait_for_agreement(TIMEOUT_S, previous=before)


def test_unknown_node_name_is_one_line(cluster: DeployedCluster) -> None:
    done = cluster.user.output("sh", "-c", "local-aws fault kill worker77 2>&1; echo $?")
    assert re.fullmatch(r"error: no node worker77; nodes: master(, worker\d+)+\n1\n", done)
