"""Forge records for half a minute, with a login user's rights and the nodes' own roles.

During the attack, dlcluster answers correctly or refuses, and nothing from the records is run or reaches a file;
afterwards, the cluster recovers without a person.
"""

import json
import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bootstrap.contract import HOST_KEY_FILE, NODE_CONFIG_FILE
from local.chaos.observer import ClusterObserver
from local.faults import Faults
from local.faults.clients import client
from tests.e2e.support.deployed_cluster import STACK, DeployedCluster, node_disk, stack_outputs
from tests.waiting import wait_until

ATTACK_S = 30
HEAL_TIMEOUT_S = 300.0
"""Timeout for the agreement; the master counts a node's corrected record only a minute after the last change."""
WELL_FORMED_ATTACK_S = 40
OWN_RECORD_TIMEOUT_S = 240.0
"""Timeout for a node's own record: a node checks it in the membership once a minute, and it counts once a minute."""
TIMEOUT_S = 1500
ATTACK = Path(__file__).with_name("forge_records.py")
ALIASES = ("deeplearning-master", "deeplearning-worker2")
FILES = (
    "etc/hosts",
    "etc/ssh/ssh_known_hosts",
    "etc/deeplearning/authorized_keys/ubuntu",
    "etc/environment",
    "etc/profile.d/deeplearning.sh",
    "etc/systemd/system.conf.d/60-deeplearning.conf",
    "etc/ssh/ssh_config.d/60-deeplearning.conf",
    "etc/ssh/sshd_config.d/60-deeplearning.conf",
    "opt/deeplearning/workers",
)
WHO = "echo $DEEPLEARNING_INSTANCE_ID"
COMMANDS = {
    "ssh": ("ssh", "worker2", "--", WHO),
    "ssh to the master": ("ssh", "--", WHO),
    "ssh-config": ("ssh-config",),
    "known-hosts": ("known-hosts",),
    "status": ("status",),
    "why": ("why",),
}

CHANGING = re.compile(r"\s*(spent|shared storage) |.*; retrying$")
"""Lines of ``dlcluster status`` that change although nobody forges a record."""

CommandResults = Mapping[str, "subprocess.CompletedProcess[str]"]


@contextmanager
def attacker(cluster: DeployedCluster, alias: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the forging program on a node, as the login user with the node's role."""
    command = shlex.join(["python3", "-", *arguments])
    with ATTACK.open() as program, subprocess.Popen(
        cluster.user.ssh_command(alias, command),
        env=dict(cluster.user.environment), stdin=program,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def start(attackers: Sequence["subprocess.Popen[str]"], go: Sequence[Path]) -> None:
    """Start all attackers at the same time: logins are impossible as soon as one of them writes."""
    for process in attackers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for path in go:
        path.touch()


def finish(attackers: Sequence["subprocess.Popen[str]"], *, seconds: int) -> list[int]:
    """Wait for the attackers; return how many kinds of records each wrote."""
    results = []
    for process in attackers:
        stdout, stderr = process.communicate(timeout=240)
        assert process.returncode == 0, stderr
        kinds, written = map(int, stdout.split())
        assert written >= seconds * kinds / 4
        results.append(kinds)
    return results


def ask(cluster: DeployedCluster) -> CommandResults:
    def run(args: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["dlcluster", *args],
            env=dict(cluster.user.environment),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(COMMANDS, pool.map(run, COMMANDS.values()), strict=True))


def right_answers(cluster: DeployedCluster) -> CommandResults:
    """Ask until every command answers: nodes may still read what an earlier test changed."""
    right: CommandResults = {}

    def all_answered() -> bool:
        nonlocal right
        right = ask(cluster)
        return all(done.returncode == 0 for done in right.values())

    wait_until(all_answered, "an answer of every command", timeout_s=HEAL_TIMEOUT_S, every_s=1)
    return right


def text_of(command: str, done: "subprocess.CompletedProcess[str]") -> str:
    """Return the part of a command's output that must not change.

    That leaves out the generation, the cost so far, and how many nodes have mounted the shared directory: an earlier
    test takes its mount target away, and what one node reports counts at most once a minute.
    """
    if command != "status":
        return done.stdout
    return "\n".join(line for line in done.stdout.splitlines()[1:] if not CHANGING.match(line))


def check(output: CommandResults, right: CommandResults) -> set[str]:
    """Return the commands that were refused; check that the others answered correctly."""
    refused = set()
    for command, done in output.items():
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        assert (done.stdout + done.stderr).replace("\n", "").isprintable()
        if done.returncode == 0:
            assert text_of(command, done) == text_of(command, right[command])
            continue
        refused.add(command)
        if command == "why":
            assert "membership record that cannot be used" in done.stdout
        elif done.returncode == 1:
            assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
            assert "membership record that cannot be used" in done.stderr
        else:  # ssh itself failed because its question for the host key was refused.
            assert (done.stdout, done.returncode) == ("", 255)
            assert "membership record that cannot be used" in done.stderr
    return refused


def wait_for_answers(cluster: DeployedCluster, right: CommandResults) -> None:
    """Wait until no command is refused: nodes may agree by their files before the master has replaced a bad record."""
    wait_until(lambda: not check(ask(cluster), right), "no refusal", timeout_s=HEAL_TIMEOUT_S, every_s=1)


def files(cluster: DeployedCluster) -> dict[tuple[str, str], str]:
    return {(name, path): (node_disk(name) / path).read_text() for name in cluster.addresses for path in FILES}


@pytest.mark.timeout(TIMEOUT_S)
def test_forged_records_run_nothing_change_nothing_and_are_replaced(cluster: DeployedCluster) -> None:
    marker = f"/tmp/forged-{uuid.uuid4().hex}"
    observer = ClusterObserver.current(STACK, environment=cluster.user.environment)
    before = observer.wait_for_agreement(HEAL_TIMEOUT_S)
    right, right_files = right_answers(cluster), files(cluster)
    assert right["ssh"].stdout.strip() == before.instances[2]

    refused: set[str] = set()
    with ExitStack() as stack:
        go = f"{marker}-go"
        attackers = [
            stack.enter_context(attacker(cluster, alias, go, str(ATTACK_S), marker, "malformed")) for alias in ALIASES
        ]
        start(attackers, [Faults.current().node(before.instances[node_index]).path(go) for node_index in (1, 2)])
        deadline, killed = time.monotonic() + ATTACK_S, False
        while time.monotonic() < deadline:
            refused |= check(ask(cluster), right)
            assert files(cluster) == right_files
            if not killed:
                Faults.current().kill_agent(before.instances[1])
                killed = True
        for kinds in finish(attackers, seconds=ATTACK_S):
            assert kinds >= 10
    assert refused, "no forged record was ever seen"

    after = observer.wait_for_agreement(HEAL_TIMEOUT_S)
    assert after.instances == before.instances
    wait_for_answers(cluster, right)
    assert files(cluster) == right_files
    assert not Path(marker).exists()
    for name in cluster.addresses:
        assert not (node_disk(name) / marker.lstrip("/")).exists()
        assert not Path(f"/proc/{Faults.current().node(name).init()}/root", marker.lstrip("/")).exists()


def wrong_records(cluster: DeployedCluster) -> list[str]:
    """List the nodes whose own record in the table lacks their key, or says that they drain."""
    table, wrong = stack_outputs()["ClusterTable"], []
    for name in cluster.addresses:
        node = Faults.current().node(name)
        config = json.loads(node.path(NODE_CONFIG_FILE).read_text())
        key = {"id": {"S": f"{config[config['node_type'] + '_role_id']}:{name}"}}
        item = client("dynamodb").get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
        host_key = " ".join(node.path(HOST_KEY_FILE).read_text().split()[:2])
        if (item.get("host_key"), item.get("draining")) != ({"S": host_key}, {"BOOL": False}):
            wrong.append(name)
    return wrong


@pytest.mark.timeout(TIMEOUT_S)
def test_well_formed_forgeries_change_no_other_record_and_are_undone(cluster: DeployedCluster) -> None:
    # For a moment, the master's membership is forged, and a worker's record is draining and has another key.
    marker = f"/tmp/forged-{uuid.uuid4().hex}"
    observer = ClusterObserver.current(STACK, environment=cluster.user.environment)
    before = observer.wait_for_agreement(HEAL_TIMEOUT_S)
    right, right_files = right_answers(cluster), files(cluster)

    believed = False
    with ExitStack() as stack:
        go = f"{marker}-go"
        args = (go, str(WELL_FORMED_ATTACK_S), marker, "well-formed")
        attackers = [stack.enter_context(attacker(cluster, alias, *args)) for alias in ALIASES]
        start(attackers, [Faults.current().node(before.instances[node_index]).path(go) for node_index in (1, 2)])
        deadline = time.monotonic() + WELL_FORMED_ATTACK_S
        while time.monotonic() < deadline:
            believed |= files(cluster) != right_files
            done = subprocess.run(
                ["dlcluster", "status"],
                env=dict(cluster.user.environment), capture_output=True, text=True, check=False, timeout=180,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, "")
            time.sleep(1.0)
        finish(attackers, seconds=WELL_FORMED_ATTACK_S)
    assert believed, "no forged record was ever believed"

    wait_until(lambda: not wrong_records(cluster), "the nodes' own records", timeout_s=OWN_RECORD_TIMEOUT_S, every_s=1)
    after = observer.wait_for_agreement(HEAL_TIMEOUT_S)
    assert after.instances == before.instances
    wait_until(lambda: files(cluster) == right_files, "the right files", timeout_s=HEAL_TIMEOUT_S)
    wait_for_answers(cluster, right)
