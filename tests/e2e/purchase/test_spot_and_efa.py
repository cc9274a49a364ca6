"""Test spot workers with Elastic Fabric Adapters and an on-demand master of a CPU type, which does not train.

``make soak`` runs it. The tests share one cluster and build on each other: what EC2 describes is compared with what was
ordered, EC2 reclaims a worker during a job, and the workers get other network cards.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any, Final

import pytest

from bootstrap.contract import MASTER, WORKER
from local.faults import Faults
from local.faults.clients import client
from local.node.container import EFA_DEVICES
from local.run.user import User
from tests.e2e.support.checkouts import Edit
from tests.e2e.support.deployed_cluster import stack_outputs
from tests.e2e.support.ec2_nodes import (
    DEVICES,
    FOUR_CARDS,
    HEAL_S,
    INTERFACES_OF_FOUR_CARDS,
    INTERFACES_WITHOUT_EFA,
    Interface,
    expected_workers_seen,
    instance_of,
    instances_by_node_type,
    interfaces,
    launch,
    running_instances,
    wait_for_another,
    workers_seen_on,
)
from tests.e2e.support.group_states import instance_states
from tests.e2e.support.laptop import Laptop, new_laptop
from tests.waiting import wait_until

CPU, ONE_CARD = "c5.large", "g4dn.8xlarge"
HOSTS: Final = ("worker2", "worker3")
NOTICE_S = 60.0
TRAINING_S = 300.0
"""Deadline of the training, in seconds; below that of pytest."""
TRAINING = (
    "cd && launch --max-restarts 1 --min-nodes 1 --rejoin-timeout 0 python /opt/deeplearning/trainer"
    " --kv-store dist_sync --num-epochs 10000 --model-prefix s3://$DEEPLEARNING_BUCKET/reclaimed/net 2>&1"
)
SHOW_RANK = "echo rank $RANK of $WORLD_SIZE on $DEEPLEARNING_INSTANCE_ID with $(env | grep -oE '^(NCCL|FI|RDMAV)_\\w+')"
ADAPTER = "rdmap0s6"
SHORT_BOOTSTRAP_TIMEOUT = Edit(
    file="stacks/nodes/node_config.py",
    old="NODE_READY_TIMEOUT_S: Final = 1200\n",
    new="NODE_READY_TIMEOUT_S: Final = 60\n",
)
"""Edit after which a node that is not ready gives up soon, but not before a good one is ready on a busy machine."""


@pytest.fixture(scope="module")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """Deploy the cluster, which ends with the local AWS."""
    settings = {"instance_type": ONE_CARD, "master_instance_type": CPU, "purchase": "spot", "worker_count": 2}
    made = new_laptop(user, tmp_path_factory.mktemp("spot"), settings)
    made.run("cdk", "deploy")
    user.write_ssh_config()
    return made


def workers() -> list[dict[str, Any]]:
    return instances_by_node_type()[WORKER]


def take_adapter(instance_id: str) -> None:
    """Take one of a node's adapters away, as when its driver fails."""
    Faults.current().node(instance_id).run("mv", f"/{EFA_DEVICES}/{ADAPTER}", f"/run/local-aws/{ADAPTER}")


def restore_adapter(instance_id: str) -> None:
    Faults.current().node(instance_id).run("mv", f"/run/local-aws/{ADAPTER}", f"/{EFA_DEVICES}/{ADAPTER}")


def is_open_to_itself(group: dict[str, Any]) -> bool:
    """Return True if a security group allows all traffic from and to itself, as EFA requires."""
    own = [
        {
            pair["GroupId"]
            for rule in group[direction]
            if rule["IpProtocol"] == "-1"
            for pair in rule["UserIdGroupPairs"]
        }
        for direction in ("IpPermissions", "IpPermissionsEgress")
    ]
    return all(group["GroupId"] in allowed for allowed in own)


def test_master_is_on_demand_and_workers_are_spot_instances_with_efa(laptop: Laptop) -> None:
    instances = instances_by_node_type()
    [master] = instances[MASTER]
    assert (master["InstanceType"], master.get("InstanceLifecycle")) == (CPU, None)
    assert (interfaces(master), bool(master["PublicIpAddress"])) == (INTERFACES_WITHOUT_EFA, True)
    assert len(instances[WORKER]) == len(HOSTS)
    for worker in instances[WORKER]:
        assert (worker["InstanceType"], worker["InstanceLifecycle"]) == (ONE_CARD, "spot")
        assert interfaces(worker) == [Interface(card=0, device=0, kind="efa")]
        assert not worker["Placement"].get("GroupName")
        ids = [group["GroupId"] for group in worker["NetworkInterfaces"][0]["Groups"]]
        groups = client("ec2").describe_security_groups(GroupIds=ids)["SecurityGroups"]
        assert any(map(is_open_to_itself, groups))
    assert laptop.user.ssh("deeplearning-master", DEVICES) == ""


def test_lists_and_variables_leave_out_the_master(laptop: Laptop) -> None:
    for host in ("master", *HOSTS):
        assert workers_seen_on(laptop, host) == expected_workers_seen(*HOSTS, gpus=1)


def test_job_runs_on_the_workers_only(laptop: Laptop) -> None:
    done = launch(laptop, shlex.quote(SHOW_RANK))
    assert (done.returncode, done.stderr) == (0, "")
    assert {*done.stdout.splitlines()} == {
        f"deeplearning-worker{index} [0] rank {rank} of 2 on {instance_of(index)} with NCCL_SOCKET_IFNAME"
        for rank, index in enumerate((2, 3))
    }


def test_every_program_sees_the_adapters_and_a_lost_one_is_named(laptop: Laptop) -> None:
    unit = f"sudo systemd-run --quiet --wait --pipe --collect sh -c {shlex.quote(DEVICES)}"
    for host in HOSTS:
        assert laptop.user.ssh(f"deeplearning-{host}", f"{DEVICES}; {unit}") == f"{ADAPTER}\n" * 2
    lost = instance_of(3)
    take_adapter(lost)
    try:
        refused = launch(laptop, "true")
        checked = laptop.start("dlcluster", "check", "--json")
        report = json.loads(checked.communicate(timeout=HEAL_S)[0])
    finally:
        restore_adapter(lost)
    assert refused.stderr.startswith("launch: nothing started: no EFA on deeplearning-worker3 but on the other nodes")
    assert [(node["name"], node["efa"], node["expected_efa"]) for node in report["nodes"]] == [
        ("worker2", 1, 1),
        ("worker3", 0, 1),
    ]
    assert [(finding["node"], finding["what"]) for finding in report["findings"]] == [("worker3", "efa")]
    assert (report["missing_nodes"], checked.returncode) == (0, 1)


@contextmanager
def training(laptop: Laptop) -> Iterator[Iterator[str]]:
    """Yield the output lines of a training, which ends with the block."""
    args = laptop.user.ssh_command("deeplearning-master", TRAINING)
    with subprocess.Popen(
        args, env=dict(laptop.user.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        # Killed, it prints no more lines, and text_until fails with those that it has read.
        deadline = Timer(TRAINING_S, process.kill)
        deadline.start()
        try:
            yield iter(process.stdout)
        finally:
            deadline.cancel()
            try:
                laptop.user.ssh("deeplearning-master", "launch stop")
            finally:
                process.kill()


def text_until(lines: Iterator[str], pattern: str) -> str:
    """Return the output up to the first line that matches the pattern; `training` ends the output at its deadline."""
    seen: list[str] = []
    for line in lines:
        seen.append(line)
        if re.search(pattern, line):
            return "".join(seen)
    pytest.fail(f"the job ended before {pattern!r}:\n{''.join(seen)}")


def test_reclaimed_worker_leaves_and_the_job_continues_from_its_checkpoint(laptop: Laptop) -> None:
    # The worker is that of rank 0, so the checkpoint comes from the bucket. Its replacement will have no EFA.
    before = instances_by_node_type()
    laptop.set(efa="off")
    laptop.run("cdk", "deploy")
    assert instances_by_node_type() == before
    reclaimed = instance_of(2)
    with training(laptop) as lines:
        text_until(lines, r"rank 0/2 Epoch\[2\] ")
        Faults.current().spot_notice("worker2", seconds=NOTICE_S)
        text = text_until(lines, r"launch: restart 1 of 1 ")
        assert instance_states({reclaimed}) == {"running"}, "the job must not wait for the end"
        text += text_until(lines, r"rank 0/1 Epoch\[\d+\] ")
    stopped = re.findall(r"rank (\d)/2 stopped by (?:SIGTERM|another rank's signal), with a checkpoint", text)
    assert sorted(stopped) == ["0", "1"]
    assert "launch: deeplearning-worker2 is draining; waiting at most 0 s for 2 nodes" in text
    assert "launch: restart 1 of 1 on 1 of 2 nodes: deeplearning-worker3" in text
    [epoch] = re.findall(r"rank 0/1 resuming at epoch (\d+) ", text)
    assert int(epoch) > 2
    after = wait_for_another(2, than={reclaimed})
    assert instance_states({reclaimed}) == {"terminated"}
    assert instances_by_node_type()[MASTER] == before[MASTER]
    [replacement] = [worker for worker in workers() if worker["InstanceId"] == after]
    assert (replacement["InstanceLifecycle"], interfaces(replacement)) == ("spot", INTERFACES_WITHOUT_EFA)


def test_launch_refuses_to_mix_fabrics(laptop: Laptop) -> None:
    refused = launch(laptop, "true")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines() == [
        "launch: nothing started: no EFA on deeplearning-worker2 but on the other nodes: replace the nodes that were "
        "launched before efa or instance_type changed (--force starts anyway)"
    ]
    forced = launch(laptop, "--force echo there")
    assert sorted(forced.stdout.splitlines()) == [f"deeplearning-{host} [0] there" for host in HOSTS]


@pytest.fixture(scope="module")
def four_cards(laptop: Laptop) -> dict[str, str]:
    """Order workers with four cards; return the old worker3 and the new ones, of which the first lacks an adapter."""
    SHORT_BOOTSTRAP_TIMEOUT.make(laptop.checkout)
    laptop.set(efa="auto", instance_type=FOUR_CARDS)
    laptop.run("cdk", "deploy")
    before = {worker["InstanceId"] for worker in workers()}
    lost = instance_of(2)
    client("ec2").terminate_instances(InstanceIds=[lost])
    [broken] = {worker["InstanceId"] for worker in workers()} - before
    faults = Faults.current()

    def shows_adapters() -> bool:
        node = faults.node(broken)
        return node.is_up and node.path(f"/sys/class/infiniband/{ADAPTER}").exists()

    wait_until(shows_adapters, "the boot of the node", timeout_s=HEAL_S, every_s=0.05)
    take_adapter(broken)
    recommended = instance_of(3)
    faults.rebalance_recommendation(recommended)
    new = {"recommended": recommended, "broken": broken, "worker3": wait_for_another(3, than=before)}
    return new | {"worker2": wait_for_another(2, than={*before, broken})}


def log_of(instance_id: str) -> str:
    """Return what the agent of a node has sent to the cluster's log group."""
    group = stack_outputs()["ClusterLogGroup"]
    events = client("logs").get_log_events(logGroupName=group, logStreamName=instance_id, startFromHead=True)["events"]
    return "\n".join(event["message"] for event in events)


def test_node_that_lacks_an_adapter_is_not_ready_and_is_replaced(four_cards: dict[str, str]) -> None:
    log = log_of(four_cards["broken"])
    assert re.search(r"asked \S+-worker to replace this node: efa 3/4", log), log
    assert "phase signal took" not in log
    assert instance_states({four_cards["broken"]}) <= {"shutting-down", "terminated"}


def test_rebalance_recommendation_is_logged(four_cards: dict[str, str]) -> None:
    log = log_of(four_cards["recommended"])
    assert re.search(
        r"asked \S+-worker to replace this node: EC2 rebalance recommendation: high risk of interruption", log
    ), log


def test_workers_have_an_adapter_on_every_card_and_one_address(laptop: Laptop, four_cards: dict[str, str]) -> None:
    workers_by_id = {worker["InstanceId"]: worker for worker in workers()}
    assert {*workers_by_id} == {four_cards[host] for host in HOSTS}
    ask = 'curl -sf -H "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest'
    read = (
        "token=$(curl -sfX PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token);"
        f"for mac in $({ask}/meta-data/network/interfaces/macs/); do"
        f" echo $({ask}/meta-data/network/interfaces/macs/${{mac}}network-card)"
        f" $({ask}/meta-data/network/interfaces/macs/${{mac}}device-number) $mac; done"
    )
    for host in HOSTS:
        node = workers_by_id[four_cards[host]]
        assert (node["InstanceType"], node["InstanceLifecycle"], node.get("PublicIpAddress")) == (
            FOUR_CARDS,
            "spot",
            None,
        )
        assert interfaces(node) == INTERFACES_OF_FOUR_CARDS
        assert [
            interface["PrivateIpAddress"] for interface in node["NetworkInterfaces"] if "PrivateIpAddress" in interface
        ] == [node["PrivateIpAddress"]]
        seen = laptop.user.ssh(f"deeplearning-{host}", f"{read}; ls /sys/class/infiniband | wc -l").splitlines()
        assert sorted(seen[:-1]) == sorted(
            f"{attachment['NetworkCardIndex']} {attachment['DeviceIndex']} {interface['MacAddress']}/"
            for interface in node["NetworkInterfaces"]
            for attachment in [interface["Attachment"]]
        )
        assert seen[-1] == "4"
    assert running_instances() == {*workers_by_id, instances_by_node_type()[MASTER][0]["InstanceId"]}
