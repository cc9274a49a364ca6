"""Test that redeploying a running cluster with changes replaces nothing that runs.

The changes accumulate, as during the life of a cluster: each fixture deploys on top of the previous one. The last one
restores the first settings, with the first nodes.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

from bootstrap.contract import VERSION
from local.control_plane.ec2.images import FAMILIES, image_id
from tests.e2e.cluster.cluster_state import (
    ClusterState,
    event_ids,
    groups,
    records,
    state,
    template,
    wait_until_only,
    with_newcomer,
)
from tests.e2e.cluster.newer_release import NEWER, NEWER_VERSION, SIGN, release_line, shown_release
from tests.e2e.support.checkouts import REPOSITORY, copy_checkout, deploy, try_deploy
from tests.e2e.support.colleague import KEYS_TIMEOUT_S, SSH_FAILED, Colleague, new_colleague
from tests.e2e.support.deployed_cluster import NODES, DeployedCluster, aliases
from tests.e2e.support.node_views import MASTER, logins_from, read_node, wait_for_agreement

FIRST = aliases()[0]
"""Name of the master as a worker."""
WORKER = aliases()[1]
TAKE_OVER_S = 180
AGENT_LOG = "sudo cat /var/log/deeplearning/agent.log"
TAGS = {"tags": "team=vision"}
MODEL = {"instance_type": "m5.large", "ami": image_id(FAMILIES[0])}


def install(cluster: DeployedCluster, release: str) -> None:
    cluster.on(MASTER, f"sudo python3 {release}/bootstrap install")


@pytest.fixture(scope="module")
def start(cluster: DeployedCluster) -> Iterator[ClusterState]:
    deployed, before = (
        template(),
        state(cluster, {alias: read_node(cluster, alias).identity.instance_id for alias in aliases()}),
    )
    yield before
    install(cluster, before.identities[aliases()[0]].release)
    if template() != deployed:  # the last test's fixture restores it, if that test runs
        deploy(cluster)
    wait_for_agreement(cluster, before.instances)


@pytest.fixture(scope="module")
def colleague(cluster: DeployedCluster, tmp_path_factory: pytest.TempPathFactory) -> Colleague:
    return new_colleague(cluster, tmp_path_factory.mktemp("anna"), name="anna")


@pytest.fixture(scope="module")
def after_model_change(cluster: DeployedCluster, start: ClusterState, colleague: Colleague) -> ClusterState:
    """Change tags, instance type, image and SSH keys in one deploy, because each takes many seconds."""
    deploy(cluster, TAGS | MODEL | {"ssh_keys": f"anna={colleague.key}.pub"})
    return state(cluster, start.instances)


@pytest.fixture(scope="module")
def sessions(after_model_change: ClusterState, colleague: Colleague) -> Iterator[list[subprocess.Popen[str]]]:
    """Keep sessions of the colleague open, on the master and on a worker, until something ends them."""
    assert after_model_change.instances
    with ExitStack() as stack:
        yield [stack.enter_context(colleague.session(alias)) for alias in (MASTER, WORKER)]


@pytest.fixture(scope="module")
def after_adding_worker(cluster: DeployedCluster, after_model_change: ClusterState) -> ClusterState:
    """Add a worker, and remove the colleague's key."""
    deploy(cluster, TAGS | MODEL | {"worker_count": str(NODES)})
    instances = with_newcomer(after_model_change.instances)
    wait_for_agreement(cluster, instances)
    return state(cluster, instances)


@pytest.fixture(scope="module")
def newer_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("newer"), *NEWER)


@pytest.fixture(scope="module")
def after_adding_newer_worker(
    cluster: DeployedCluster, after_adding_worker: ClusterState, newer_checkout: Path
) -> ClusterState:
    """Add one worker from a newer release than the others."""
    deploy(cluster, TAGS | MODEL | {"worker_count": str(NODES + 1)}, checkout=newer_checkout)
    instances = with_newcomer(after_adding_worker.instances)
    wait_for_agreement(cluster, instances)
    return state(cluster, instances)


@pytest.fixture(scope="module")
def after_master_upgrade(cluster: DeployedCluster, after_adding_newer_worker: ClusterState) -> ClusterState:
    """Install the newer release on the master too, as if the master had been replaced."""
    *_, newest = after_adding_newer_worker.instances
    release = after_adding_newer_worker.identities[newest].release
    cluster.user.ssh(MASTER, f"rsync -a {newest}:{release} /tmp/ && sudo cp -r /tmp/{Path(release).name} {release}")
    install(cluster, release)
    return state(cluster, after_adding_newer_worker.instances)


@pytest.fixture(scope="module")
def after_rollback(cluster: DeployedCluster, after_master_upgrade: ClusterState, start: ClusterState) -> ClusterState:
    """Restore the first settings and code."""
    assert after_master_upgrade.instances.keys() > start.instances.keys()
    deploy(cluster)
    wait_for_agreement(cluster, start.instances)
    wait_until_only(start.members.keys())
    return state(cluster, start.instances)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("vpc_cidr", "10.9.0.0/16"), pytest.param("availability_zone", "us-east-1b", marks=pytest.mark.soak)],
)
def test_deploy_that_would_replace_the_network_is_refused(
    cluster: DeployedCluster, start: ClusterState, setting: str, value: str
) -> None:
    events = event_ids()
    refused = try_deploy(cluster, TAGS | {"worker_count": "5", setting: value})
    assert refused.returncode == 1
    reason = "the change would replace the network and every node; "
    sentence = f"{setting} of a running cluster cannot change, got {value}: {reason}"
    assert any(
        sentence in line and line.endswith("or run cdk destroy first") for line in refused.stdout.splitlines()
    ), refused.stdout
    assert event_ids() == events
    assert state(cluster, start.instances) == start


def test_changed_tags_type_and_image_touch_no_node(start: ClusterState, after_model_change: ClusterState) -> None:
    assert (after_model_change.identities, after_model_change.members) == (start.identities, start.members)
    assert after_model_change.versions == [version + 1 for version in start.versions]


@pytest.mark.usefixtures("after_model_change")
def test_changed_tags_reach_the_network_and_the_groups(cluster: DeployedCluster) -> None:
    team = {"Key": "team", "Value": "vision"}
    (vpc,) = boto3.client("ec2").describe_vpcs(VpcIds=[cluster.master["VpcId"]])["Vpcs"]
    assert team in vpc["Tags"]
    for group in groups():
        assert team in [{key: tag[key] for key in team} for tag in group["Tags"]]


@pytest.mark.usefixtures("sessions")
def test_added_key_opens_the_nodes_that_run_and_names_its_jobs(colleague: Colleague) -> None:
    assert colleague.output(WORKER, "cat $SSH_USER_AUTH").startswith("publickey ssh-ed25519 ")
    colleague.output(MASTER, "launch -n 1 true && launch -n 1 --detach true")
    by_hand, detached = json.loads(colleague.output(MASTER, "launch list --json"))[-2:]
    assert (by_hand["started_by"], detached["started_by"], detached["detached"]) == ("anna", "anna", True)


@pytest.mark.usefixtures("after_adding_worker")
def test_removed_key_opens_no_node_and_its_sessions_end(
    colleague: Colleague, sessions: list[subprocess.Popen[str]]
) -> None:
    for session, alias in zip(sessions, (MASTER, WORKER), strict=True):
        assert session.wait(KEYS_TIMEOUT_S) == SSH_FAILED
        refused = colleague.log_in(alias, "true")
        assert (refused.returncode, "Permission denied (publickey)" in refused.stderr) == (SSH_FAILED, True)


def test_one_more_worker_joins_and_the_others_stay(
    cluster: DeployedCluster, after_model_change: ClusterState, after_adding_worker: ClusterState
) -> None:
    assert after_model_change.identities.items() < after_adding_worker.identities.items()
    assert after_model_change.members.items() < after_adding_worker.members.items()
    expected = [
        f"{instance_id} {len(after_adding_worker.instances)}" for instance_id in after_adding_worker.instances.values()
    ]
    assert logins_from(cluster, MASTER) == expected


def test_next_node_has_the_changed_type_image_and_tags(
    after_model_change: ClusterState, after_adding_worker: ClusterState
) -> None:
    (newcomer,) = after_adding_worker.members.keys() - after_model_change.members.keys()
    for instance_id, found in after_adding_worker.members.items():
        changed = (found["InstanceType"], found["ImageId"], {"Key": "team", "Value": "vision"} in found["Tags"])
        assert (changed == (MODEL["instance_type"], MODEL["ami"], True)) == (instance_id == newcomer)


def test_changed_code_reaches_only_new_nodes(
    cluster: DeployedCluster, after_adding_worker: ClusterState, after_adding_newer_worker: ClusterState
) -> None:
    assert after_adding_worker.identities.items() < after_adding_newer_worker.identities.items()
    assert after_adding_worker.members.items() < after_adding_newer_worker.members.items()
    *_, newest = after_adding_newer_worker.instances
    releases = {alias: identity.release for alias, identity in after_adding_newer_worker.identities.items()}
    assert [alias for alias in releases if releases[alias] != releases[FIRST]] == [newest]
    assert f"{SIGN} of a worker" in cluster.on(newest, AGENT_LOG)


def test_status_names_laptop_stack_and_nodes_of_other_releases_and_what_to_do(
    cluster: DeployedCluster, newer_checkout: Path, after_adding_newer_worker: ClusterState
) -> None:
    *older, newest = after_adding_newer_worker.instances
    names = ", ".join(["master", *(alias.removeprefix("deeplearning-") for alias in older[1:])])
    stack = shown_release(after_adding_newer_worker, newest, NEWER_VERSION)
    nodes = f"{names} {shown_release(after_adding_newer_worker, older[0], VERSION)}"
    replace = "dlcluster pause and resume replace the nodes"
    here = f"dlcluster {VERSION}, stack {stack}, {nodes}: update dlcluster on this machine; {replace}"
    assert release_line(cluster, REPOSITORY) == here
    there = f"dlcluster {NEWER_VERSION}, stack {stack}, {nodes}: {replace}"
    assert release_line(cluster, newer_checkout) == there


def test_older_coordinator_takes_in_a_newer_agent(after_adding_newer_worker: ClusterState) -> None:
    *_, newest = after_adding_newer_worker.instances
    signed = [key for key, record in after_adding_newer_worker.records.items() if record.get("made_by") == SIGN]
    assert signed == [after_adding_newer_worker.instances[newest]]


def test_job_runs_on_nodes_of_both_releases(cluster: DeployedCluster, after_adding_newer_worker: ClusterState) -> None:
    printed = cluster.user.ssh(MASTER, "launch 'echo $DEEPLEARNING_INSTANCE_ID'")
    assert sorted(line.split()[-1] for line in printed.splitlines()) == sorted(
        after_adding_newer_worker.instances.values()
    )


def test_fewer_workers_end_the_newest_and_leave_the_others(
    start: ClusterState, after_master_upgrade: ClusterState, after_rollback: ClusterState
) -> None:
    assert {alias: after_master_upgrade.identities[alias] for alias in start.instances} == after_rollback.identities
    assert after_rollback.members == start.members
    gone = [*after_master_upgrade.members.keys() - start.members.keys()]
    reservations = boto3.client("ec2").describe_instances(InstanceIds=gone)["Reservations"]
    assert {i["State"]["Name"] for r in reservations for i in r["Instances"]} == {"terminated"}


@pytest.mark.usefixtures("after_rollback")
def test_status_of_a_newer_laptop_advises_a_deploy(cluster: DeployedCluster, newer_checkout: Path) -> None:
    found = release_line(cluster, newer_checkout)
    assert found.startswith(f"dlcluster {NEWER_VERSION}, stack {VERSION} (")
    assert ": cdk deploy brings the stack up to this one; " in found


def test_older_agents_follow_a_newer_coordinator(start: ClusterState, after_rollback: ClusterState) -> None:
    membership = after_rollback.records["membership"]
    assert membership["made_by"] == SIGN
    rows = json.loads(membership["members"])
    assert [row["made_by"] for row in rows] == [SIGN] * NODES
    workers = [alias for alias in start.instances if alias != FIRST]
    assert {after_rollback.identities[alias].release for alias in workers} == {
        start.identities[alias].release for alias in workers
    }


def test_older_coordinator_takes_over_from_a_newer_one(
    cluster: DeployedCluster, start: ClusterState, after_rollback: ClusterState
) -> None:
    before, deadline = len(cluster.on(MASTER, AGENT_LOG)), time.monotonic() + TAKE_OVER_S
    install(cluster, start.identities[FIRST].release)
    while "phase files" not in (log := cluster.on(MASTER, AGENT_LOG)[before:]):
        assert time.monotonic() < deadline, f"waited {TAKE_OVER_S} s for the older agent, which logged\n{log}"
        time.sleep(0.5)
    assert "WARNING" not in log
    assert records() == after_rollback.records | {start.instances[FIRST]: start.records[start.instances[FIRST]]}
