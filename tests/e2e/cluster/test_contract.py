"""Test that scripts written for deeplearning-cfn find what they rely on, on every node."""

import re
import time

import boto3
import pytest

from tests.e2e.support.deployed_cluster import NODES, DeployedCluster, aliases, stack_outputs
from tests.waiting import wait_until

VARIABLES = {
    "DEEPLEARNING_WORKERS_PATH": "/opt/deeplearning/workers",
    "DEEPLEARNING_WORKERS_COUNT": str(NODES),
    "DEEPLEARNING_WORKER_GPU_COUNT": "0",
}
FOREIGN_LINE = "192.0.2.7 a-line-of-the-users.example"


def expected_variables() -> dict[str, str]:
    return VARIABLES | {"DEEPLEARNING_BUCKET": stack_outputs()["ClusterBucket"]}


def variables(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if line.startswith("DEEPLEARNING_"))
    return {name: value for name, value in pairs if name in (*VARIABLES, "DEEPLEARNING_BUCKET")}


@pytest.mark.parametrize("alias", aliases())
def test_host_names_resolve_to_the_instances_in_ec2(cluster: DeployedCluster, alias: str) -> None:
    lines = cluster.on(alias, f"getent ahostsv4 deeplearning-master {' '.join(aliases())}").splitlines()
    found = {words[2]: words[0] for line in lines if len(words := line.split()) == 3}
    assert found["deeplearning-master"] == cluster.master["PrivateIpAddress"]
    assert cluster.on(alias, "getent hosts deeplearning-worker1").split()[0] == cluster.master["PrivateIpAddress"]
    resolved = {cluster.on(alias, f"getent ahostsv4 {name}").split()[0] for name in aliases()}
    assert resolved == set(cluster.addresses.values())


@pytest.mark.parametrize("alias", aliases())
def test_alias_resolves_to_the_machine_that_answers(cluster: DeployedCluster, alias: str) -> None:
    instance_id = cluster.on(alias, "cat /var/lib/cloud/data/instance-id")
    assert cluster.on(alias, f"getent ahostsv4 {alias}").split()[0] == cluster.addresses[instance_id]


@pytest.mark.parametrize("alias", aliases())
def test_workers_file_lists_every_worker(cluster: DeployedCluster, alias: str) -> None:
    assert cluster.on(alias, "cat /opt/deeplearning/workers").splitlines() == aliases()
    assert cluster.on(alias, "stat -c %U /opt/deeplearning/workers") == "ubuntu"


@pytest.mark.parametrize("alias", aliases())
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("env", id="ssh host command"),
        pytest.param("bash -lc env", id="login shell"),
        pytest.param("sudo systemd-run --quiet --wait --pipe --collect env", id="transient unit"),
    ],
)
def test_cluster_variables_are_set(cluster: DeployedCluster, alias: str, command: str) -> None:
    assert variables(cluster.on(alias, command)) == expected_variables()


def test_cluster_variables_are_set_in_a_users_unit(cluster: DeployedCluster) -> None:
    unit = "[Service]\\nType=oneshot\\nExecStart=/usr/bin/env\\nStandardOutput=file:/run/seen-by-the-unit\\n"
    script = (
        f"printf '{unit}' | sudo tee /etc/systemd/system/users.service >/dev/null"
        " && sudo systemctl daemon-reload && sudo systemctl start users.service && cat /run/seen-by-the-unit"
    )
    assert variables(cluster.on("deeplearning-worker2", script)) == expected_variables()


def test_agent_restores_its_hosts_lines_and_keeps_foreign_ones(cluster: DeployedCluster) -> None:
    alias = "deeplearning-worker3"
    before = cluster.on(alias, "cat /etc/hosts")
    assert "127.0.0.1 localhost" in before
    cluster.on(alias, f"sudo sed -i '1i {FOREIGN_LINE}' /etc/hosts && sudo sed -i '/deeplearning-worker2/d' /etc/hosts")
    deadline = time.monotonic() + 60
    while (now := cluster.on(alias, "cat /etc/hosts")) != f"{FOREIGN_LINE}\n{before}":
        assert time.monotonic() < deadline, f"waited 60 s for the agent to mend /etc/hosts, which is\n{now}"
        time.sleep(0.5)
    assert len(re.findall("BEGIN deeplearning-cdk", now)) == 1


def test_log_group_has_every_nodes_phases(cluster: DeployedCluster) -> None:
    logs, group = boto3.client("logs"), stack_outputs()["ClusterLogGroup"]

    def has_last_phase(instance_id: str) -> bool:
        events = logs.get_log_events(logGroupName=group, logStreamName=instance_id)["events"]
        return any(re.search(r"phase signal took [\d.]+ s", event["message"]) for event in events)

    # The agents send it after the signal that completes the deploy.
    wait_until(lambda: all(map(has_last_phase, cluster.addresses)), "the last phase of each node", timeout_s=60)


def test_node_writes_to_and_reads_from_the_bucket(cluster: DeployedCluster) -> None:
    there = '"s3://$DEEPLEARNING_BUCKET/job/checkpoint"'
    cluster.on("deeplearning-worker2", f"echo weights | AWS_DEFAULT_REGION=us-east-1 aws s3 cp - {there}")
    read = f"AWS_DEFAULT_REGION=us-east-1 aws s3 cp {there} -"
    assert cluster.on("deeplearning-worker3", read) == "weights"
    cluster.on("deeplearning-worker3", f"AWS_DEFAULT_REGION=us-east-1 aws s3 rm {there}")
    listing = 'AWS_DEFAULT_REGION=us-east-1 aws s3 ls "s3://$DEEPLEARNING_BUCKET/job/" --recursive'
    assert cluster.on("deeplearning-master", f"{listing} || true") == ""
