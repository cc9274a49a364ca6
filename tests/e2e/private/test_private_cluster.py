"""Test a hardened cluster in an existing VPC without internet: endpoints alone lead out, and only sessions lead in.

It needs its own cluster, and runs after the tests of failing clusters because that part of the gate is the shortest.

It deploys, trains, heals and is destroyed there, and destroying it changes no subnet. No node has a public address, and
no port is open: logins, copies and forwarded ports go through Session Manager, with permissions enforced, those of the
user's KMS key too. The nodes mount a file system that the company has.
"""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from itertools import product
from pathlib import Path

import pytest

from local.faults.clients import client
from local.network.addresses import USER_ADDRESS
from local.network.vpc_network import in_namespace
from local.run.user import User
from tests.e2e.private.commands import (
    ELSEWHERE,
    LONG,
    Commands,
    check_copies,
    check_jobs,
    check_jupyter,
    check_logins,
    check_long_commands,
    check_reports,
    check_tensorboard,
)
from tests.e2e.private.deployment import NODES, deployed_cluster
from tests.e2e.private.egress import check_egress
from tests.e2e.private.existing_vpc import (
    BOUNDARY,
    NAME,
    PRIVATE_BLOCK,
    ExistingVpc,
    PrivateCluster,
    existing_file_system,
    existing_vpc,
)
from tests.e2e.private.policy_users import users_with_policies
from tests.e2e.support.checkouts import DEPLOY_S
from tests.e2e.support.port_scan import ALL_PORTS, LISTENING_PORTS, SSH, answering_ports, listening
from tests.e2e.support.shared_directory import STATE, check_that_ranks_share
from tests.endpoints import SERVICES
from tests.waiting import wait_until

LONG_COMMANDS_TIMEOUT_S = 1500
"""Limit for the long commands, which resize, pause and bake twice, and for the deploy and destroy around them."""
MAX_SCANS = 10
"""Number of scans in which each port must answer once: a busy machine loses answers that it does not read in time."""
MASTER = f"{NAME}-master"


@pytest.fixture(scope="module")
def vpc() -> Iterator[ExistingVpc]:
    with existing_vpc() as made:
        yield made


@pytest.fixture(scope="module")
def file_system(vpc: ExistingVpc) -> Iterator[dict[str, str]]:
    with existing_file_system(vpc, name="of-the-team", subnet=vpc.private) as made:
        yield made


@pytest.fixture(scope="module")
def settings(vpc: ExistingVpc, file_system: dict[str, str]) -> list[str]:
    """Return the arguments of each deploy besides the number of nodes."""
    setup = ["-c", "setup=node-setup.sh", "-c", "requirements=node-requirements.txt"]
    return [*vpc.context, *setup, "-c", f"shared_storage=efs:{file_system['FileSystemId']}"]


@pytest.fixture(scope="module")
def cluster(
    user: User, vpc: ExistingVpc, settings: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateCluster]:
    directory = tmp_path_factory.mktemp("private")
    with deployed_cluster(user, vpc, settings, directory) as made:
        yield made


def test_nodes_are_in_the_subnet_and_have_no_public_address(cluster: PrivateCluster, vpc: ExistingVpc) -> None:
    for instance in cluster.instances:
        assert (instance["VpcId"], instance["SubnetId"]) == (vpc.vpc_id, vpc.private)
        assert IPv4Address(instance["PrivateIpAddress"]) in IPv4Network(PRIVATE_BLOCK)
        assert "PublicIpAddress" not in instance
    used = {address.get("InstanceId") for address in client("ec2").describe_addresses()["Addresses"]}
    assert not used & {instance["InstanceId"] for instance in cluster.instances}


def test_users_key_encrypts_what_the_nodes_store(cluster: PrivateCluster, vpc: ExistingVpc) -> None:
    # The local AWS refuses each read and write of a node whose role may not use the key.
    bucket = cluster.user.ssh(f"{NAME}-master", "echo $DEEPLEARNING_BUCKET").strip()
    cluster.user.ssh(f"{NAME}-worker2", f"echo kept | aws s3 cp - s3://{bucket}/checkpoint")
    assert cluster.user.ssh(f"{NAME}-master", f"aws s3 cp s3://{bucket}/checkpoint -").strip() == "kept"
    stored = client("s3").head_object(Bucket=bucket, Key="checkpoint")
    assert (stored["ServerSideEncryption"], stored["SSEKMSKeyId"]) == ("aws:kms", vpc.key)
    disks = client("ec2").describe_volumes(
        Filters=[
            {"Name": "attachment.instance-id", "Values": [instance["InstanceId"] for instance in cluster.instances]}
        ]
    )["Volumes"]
    assert [disk["KmsKeyId"] for disk in disks] == [vpc.key] * NODES
    for node_type in ("master", "worker"):
        role = client("iam").get_role(RoleName=f"team-{NAME}-us-east-1-{node_type}")["Role"]
        assert role["PermissionsBoundary"]["PermissionsBoundaryArn"].endswith(f":policy/{BOUNDARY}")


def test_each_node_has_run_the_setup_before_it_joined(cluster: PrivateCluster) -> None:
    status = json.loads(cluster.in_checkout("dlcluster", "--cluster", NAME, "status", "--json"))
    assert [node["setup"]["outcome"] for node in status["nodes"]] == ["done"] * NODES
    for host, node_type in ((f"{NAME}-master", "master"), (f"{NAME}-worker2", "worker")):
        log = cluster.user.ssh(host, "cat /srv/set-up /var/log/deeplearning/setup.log")
        assert log.startswith(f"root set up a {node_type}\n2")
        assert f"INFO setup.sh: root set up a {node_type}\n" in log
        assert "INFO requirements.txt: Requirement already satisfied: numpy in /opt/pytorch/" in log


def test_from_outside_no_port_of_any_node_answers(cluster: PrivateCluster, outside_address: str) -> None:
    # The local internet carries packets to private addresses too, as a peered network would.
    master, worker, *_ = cluster.instances
    with ExitStack() as programs:
        for instance in cluster.instances:
            programs.enter_context(listening(instance["InstanceId"]))
        targets = [str(instance["PrivateIpAddress"]) for instance in cluster.instances]
        for source, address in product((USER_ADDRESS, outside_address), targets):
            assert (source, address, answering_ports(source, address)) == (source, address, {})
        # The packets arrive: another node gets an answer from each port, and from these a connection.
        own, other = worker["PrivateIpAddress"], master["PrivateIpAddress"]
        answered = dict[int, bool]()
        for _ in range(MAX_SCANS):
            if lost := [port for port in ALL_PORTS if port not in answered]:
                answered |= in_namespace(worker["InstanceId"], partial(answering_ports, own, other, lost))
        assert len(answered) == len(ALL_PORTS)
        assert {port for port, is_open in answered.items() if is_open} >= {SSH, *LISTENING_PORTS}


def test_sessions_carry_logins_copies_and_jobs(cluster: PrivateCluster, tmp_path: Path) -> None:
    user, config = cluster.user, cluster.user.ssh_config
    assert not re.search(r"\bi-[0-9a-f]{8,}|ProxyJump", config.read_text())
    hosts = [MASTER, *(f"{NAME}-worker{number}" for number in range(2, NODES + 1))]
    addresses = [user.ssh(host, "hostname", "-I").strip() for host in hosts]
    master, *workers = (instance["PrivateIpAddress"] for instance in cluster.instances)
    assert (addresses[0], {*addresses[1:]}) == (master, {*workers})
    (tmp_path / "sent").write_bytes(bytes(range(256)) * 4096)
    user.run("scp", "-q", "-F", str(config), str(tmp_path / "sent"), f"{NAME}-master:by-scp")
    user.run("rsync", "-a", "-e", f"ssh -F {config}", f"{NAME}-master:by-scp", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
    printed = cluster.in_checkout("dlcluster", "run", "--cluster", NAME, "--", "launch", "hostname", "-I")
    assert all(str(instance["PrivateIpAddress"]) in printed for instance in cluster.instances), printed


def test_call_arrives_only_while_its_service_has_an_endpoint(cluster: PrivateCluster, vpc: ExistingVpc) -> None:
    # No node of ours needs STS, and every caller may ask it who they are.
    assert "sts" not in SERVICES

    def answer(wait_s: int) -> str:
        settings = "AWS_DEFAULT_REGION=us-east-1 AWS_MAX_ATTEMPTS=1 AWS_METADATA_SERVICE_TIMEOUT=30"
        ask = f"aws sts get-caller-identity --cli-connect-timeout {wait_s} --cli-read-timeout {wait_s} 2>&1 || true"
        return cluster.user.ssh(f"{NAME}-worker2", f"{settings} {ask}")

    assert "timeout on endpoint URL" in answer(2)
    endpoint = vpc.endpoints.create(["sts"])["sts"]
    try:
        printed = answer(30)
        _, *workers = cluster.instances
        assert sum(f"/{worker['InstanceId']}" in printed for worker in workers) == 1
    finally:
        vpc.endpoints.delete([endpoint])
    assert "timeout on endpoint URL" in answer(2)


def test_nodes_connect_only_to_addresses_in_egress(
    cluster: PrivateCluster, vpc: ExistingVpc, file_system: dict[str, str]
) -> None:
    check_egress(cluster, vpc, address_within=file_system["IpAddress"])


def test_cluster_trains_without_internet(cluster: PrivateCluster) -> None:
    job = "cd && launch python /opt/deeplearning/trainer --kv-store dist_sync --num-epochs 2 2>&1"
    printed = cluster.user.ssh(f"{NAME}-master", job)
    assert {*re.findall(rf"rank (\d)/{NODES} host=", printed)} == {*map(str, range(NODES))}, printed
    [(accuracy, checkpoint)] = re.findall(r"Validation-accuracy=(\S+) images/s=\S+ checkpoint=(\S+)", printed)
    assert float(accuracy) >= 0.8
    cluster.user.ssh(f"{NAME}-master", f"cd && test -s {checkpoint}")


def test_port_is_forwarded_from_a_worker(cluster: PrivateCluster) -> None:
    serve = "sudo systemd-run --quiet --unit board python3 -m http.server --bind 127.0.0.1 6006"
    answers = "(exec 3<>/dev/tcp/127.0.0.1/6006) 2>/dev/null"
    wait = f"for i in $(seq 600); do {answers} && exit; sleep 0.1; done; exit 1"
    cluster.user.ssh(f"{NAME}-worker2", f"{serve}; bash -c '{wait}'")
    command = ["dlcluster", "tunnel", "--cluster", NAME, "worker2", "6006", "--local-port", "16006"]
    with subprocess.Popen(
        command, cwd=cluster.checkout, env=dict(cluster.user.environment), stdout=subprocess.PIPE, text=True
    ) as tunnel:
        assert tunnel.stdout is not None
        try:
            assert tunnel.stdout.readline().startswith("http://127.0.0.1:16006/ is port 6006 of worker2")
            with urllib.request.urlopen("http://127.0.0.1:16006/", timeout=60) as answer:
                assert "Directory listing" in answer.read().decode()
        finally:
            tunnel.terminate()


def test_three_nodes_share_the_companys_file_system(cluster: PrivateCluster, file_system: dict[str, str]) -> None:
    hosts = [MASTER, *(f"{NAME}-worker{number}" for number in range(2, NODES + 1))]
    wait_until(
        lambda: {cluster.user.ssh(host, STATE).strip() for host in hosts} == {"mounted"}, "all mounts", timeout_s=300
    )
    # The root directory of a file system that exists keeps its owner: its administrator opens it.
    cluster.user.ssh(MASTER, "sudo chmod 1777 /shared")
    check_that_ranks_share(lambda command: cluster.user.ssh(MASTER, command), nodes=NODES)
    status = json.loads(cluster.in_checkout("dlcluster", "--cluster", NAME, "status", "--json"))
    assert status["shared_storage"] == f"efs:{file_system['FileSystemId']}"


def test_tensorboard_is_shown_through_a_session(cluster: PrivateCluster, tmp_path: Path) -> None:
    check_tensorboard(Commands.of(cluster, tmp_path / "project"), tmp_path)


def test_every_command_works_through_sessions(cluster: PrivateCluster, tmp_path: Path) -> None:
    commands = Commands.of(cluster, tmp_path / "project")
    check_reports(commands)
    check_logins(commands)
    check_jobs(commands, nodes=NODES)
    check_copies(commands, tmp_path)
    assert commands.commands_not_run() == {*LONG, *ELSEWHERE}


@pytest.mark.soak
def test_jupyter_is_shown_through_a_session(cluster: PrivateCluster, tmp_path: Path) -> None:
    check_jupyter(Commands.of(cluster, tmp_path / "project"))


@pytest.mark.soak
@pytest.mark.timeout(LONG_COMMANDS_TIMEOUT_S)
def test_commands_that_measure_deploy_or_boot_work_through_sessions(
    cluster: PrivateCluster, settings: list[str], tmp_path: Path
) -> None:
    commands = Commands.of(cluster, tmp_path / "project")
    check_long_commands(commands, replace(commands, cluster=cluster), settings=settings, nodes=NODES)
    assert commands.seen == {*LONG}


@pytest.fixture
def keys(cluster: PrivateCluster) -> Iterator[dict[str, dict[str, str]]]:
    with users_with_policies(cluster) as made:
        yield made


def test_policy_for_another_cluster_starts_no_session(cluster: PrivateCluster, keys: dict[str, dict[str, str]]) -> None:
    login = ("dlcluster", "--cluster", NAME, "ssh", "--", "hostname")
    done = cluster.try_in_checkout(*login, **keys["own"])
    assert (done.returncode, done.stderr) == (0, ""), done
    status = cluster.try_in_checkout("dlcluster", "--cluster", NAME, "status", "--json", **keys["own"])
    assert [node["public_address"] for node in json.loads(status.stdout)["nodes"]] == [None] * NODES
    for command in (login, ("dlcluster", "--cluster", NAME, "jobs")):
        refused = cluster.try_in_checkout(*command, **keys["other"])
        assert refused.returncode != 0
        assert "AccessDeniedException" in refused.stderr
        assert "is not authorized to perform: ssm:StartSession on resource: arn:aws:ec2:" in refused.stderr
    shell = ("aws", "ssm", "start-session", "--target", cluster.instances[0]["InstanceId"])
    assert "AccessDenied" in cluster.try_in_checkout(*shell, **keys["own"]).stderr, "a root shell needs no key"


def test_lost_master_and_worker_are_reached_again_by_the_same_names(cluster: PrivateCluster) -> None:
    show_id = "cat /var/lib/cloud/data/instance-id"

    def on(host: str, command: str) -> str:
        """Return what a command prints, also while no node of that name can be reached."""
        return cluster.try_in_checkout(*cluster.user.ssh_command(host, command)).stdout

    def is_another(host: str) -> bool:
        return on(host, show_id).strip() not in ("", lost[host])

    def is_complete() -> bool:
        printed = on(MASTER, f"timeout 60 launch {show_id}")
        return all(str(instance["InstanceId"]) in printed for instance in cluster.instances)

    node_types = {MASTER: "master", f"{NAME}-worker2": "worker"}
    lost = {host: on(host, show_id).strip() for host in node_types}
    client("ec2").terminate_instances(InstanceIds=[*lost.values()])
    for host, node_type in node_types.items():
        wait_until(partial(is_another, host), f"another {host}", timeout_s=DEPLOY_S, every_s=1)
        assert on(host, "cat /srv/set-up") == f"root set up a {node_type}\n"
    wait_until(is_complete, "a job on all nodes, the new ones too", timeout_s=DEPLOY_S, every_s=1)
    assert len(cluster.instances) == NODES
