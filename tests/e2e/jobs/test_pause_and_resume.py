"""A cluster is put to sleep: its nodes end, a deploy starts none, and it comes back under the same numbers."""

import json
import subprocess

from local.faults.clients import client
from tests.e2e.checkouts import deploy
from tests.e2e.conftest import NODES, Cluster, aliases, group_instances, stack_outputs

TAGS = {"tags": "team=vision"}
"""A change that reaches both groups."""


def dlcluster(cluster: Cluster, *words: str) -> str:
    done = subprocess.run(
        ["dlcluster", *words], env=dict(cluster.user.environment), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sizes() -> list[tuple[int, int, int]]:
    names = [stack_outputs()[f"{kind}AutoScalingGroup"] for kind in ("Master", "Worker")]
    found = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
    by_name = {each["AutoScalingGroupName"]: each for each in found}
    return [(by_name[n]["MinSize"], by_name[n]["DesiredCapacity"], by_name[n]["MaxSize"]) for n in names]


def members() -> set[str]:
    outputs = stack_outputs()
    names = (outputs["MasterAutoScalingGroup"], outputs["WorkerAutoScalingGroup"])
    return {instance["InstanceId"] for name in names for instance in group_instances(name)}


def test_a_paused_cluster_stays_paused_through_a_deploy_and_comes_back(cluster: Cluster) -> None:
    before = members()
    ended = json.loads(dlcluster(cluster, "pause", "--yes", "--json"))["ended"]
    assert {*ended} == before
    reservations = client("ec2").describe_instances(InstanceIds=ended)["Reservations"]
    assert {i["State"]["Name"] for r in reservations for i in r["Instances"]} == {"terminated"}
    deploy(cluster, TAGS)
    assert (members(), sizes()) == (set(), [(0, 0, 0), (0, 0, 0)])
    nodes = json.loads(dlcluster(cluster, "resume", "--json"))["nodes"]
    assert [node["index"] for node in nodes] == [*range(1, NODES + 1)]
    assert {node["instance_id"] for node in nodes} == members()
    assert sizes() == [(1, 1, 1), (NODES - 1, NODES - 1, NODES - 1)]
    said = dlcluster(cluster, "run", "--", "launch", "echo $DEEPLEARNING_INSTANCE_ID")
    expected = {f"{alias} [0] {node['instance_id']}" for alias, node in zip(aliases(), nodes, strict=True)}
    assert {*said.splitlines()} == expected
