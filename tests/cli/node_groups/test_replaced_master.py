"""Test that commands that do not need the master answer while it is being replaced."""

import json

import pytest

from bootstrap.contract import MASTER, WORKER
from cli.main import main
from tests.cli.moto_cluster import KEY, put_members
from tests.cli.node_groups.nodeless_cluster import NAME, NodelessCluster
from tests.local.control_plane.harness import REGION


def lose_master(deployed: NodelessCluster) -> str:
    """Terminate the master before its group launches another; return its instance."""
    master, _ = deployed.names()
    deployed.autoscaling.suspend_processes(AutoScalingGroupName=master, ScalingProcesses=["Launch"])
    [lost] = deployed.instances()[MASTER]
    deployed.aws.client("ec2").terminate_instances(InstanceIds=[lost])
    return lost


def list_workers_alone(deployed: NodelessCluster) -> None:
    """Write the membership of a new master that is not a member yet."""
    workers = enumerate(deployed.instances()[WORKER], 2)
    rows = [
        {"node_index": index, "instance_id": name, "address": f"10.0.1.{index}", "node_type": WORKER, "host_key": KEY}
        for index, name in workers
    ]
    put_members(deployed.stacks.physical_id("Table", name=NAME), rows, desired_nodes=3, region=REGION)


@pytest.mark.parametrize("is_listed", [True, False], ids=["old master listed", "no master listed"])
def test_commands_without_the_master_answer_while_it_is_replaced(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str], *, is_listed: bool
) -> None:
    lost, workers = lose_master(deployed), deployed.instances()[WORKER]
    if not is_listed:
        list_workers_alone(deployed)

    def output(*words: str) -> str:
        assert main(words) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    status = json.loads(output("status", "--json"))
    assert (status["running_nodes"], status["missing_nodes"]) == (2, 1)
    [reason] = status["reasons"]
    assert reason.endswith(f"demo-master: Terminating EC2 instance: {lost}, Successful")
    states = {node["instance_id"]: node["state"] for node in status["nodes"]}
    assert states == dict.fromkeys(workers, "running") | ({lost: "terminated"} if is_listed else {})
    [row] = json.loads(output("list", "--json"))["clusters"]
    assert (row["name"], row["desired_nodes"]) == (NAME, 3)
    # The groups request all three nodes, and AWS is about to launch the third.
    assert json.loads(output("cost", "--json"))["usd_per_hour"] == status["usd_per_hour"] > 3 * 0.085
    why = json.loads(output("why", "--json"))
    assert (why["nodes"], why["unanswered"]) == ("1 of 3 nodes missing", [])
    assert lost in why["activities"][0]["description"]
    hosts = [line.partition(" ")[0].split(",") for line in output("known-hosts").splitlines()]
    assert {name for names in hosts for name in names if name.startswith("i-")} == states.keys()
    assert json.loads(output("policy"))["Statement"]


@pytest.mark.parametrize("is_listed", [True, False], ids=["old master listed", "no master listed"])
def test_pause_without_a_master_says_that_jobs_are_unknown(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str], *, is_listed: bool
) -> None:
    lost = lose_master(deployed)
    if not is_listed:
        list_workers_alone(deployed)
    assert main(["pause", "--yes"]) == 0
    out, err = capsys.readouterr()
    reason = "the cluster has no master now: it may be starting or being replaced"
    if is_listed:
        reason += f" ({lost} is terminated)"
    assert (out, err.splitlines()[0]) == (
        "demo is paused\n",
        f"dlcluster: cannot determine which jobs run: {reason}",
    )
    assert deployed.instances() == {MASTER: [], WORKER: []}
