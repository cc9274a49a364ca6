"""Test what a user does at a terminal: interrupt a remote command, list the instances."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.run.interactive import REPOSITORY, SHELL
from tests.e2e.support.deployed_cluster import DeployedCluster
from tests.local.terminal import CTRL_C, Terminal

LOCAL_PROMPT = r"\[local-aws \w+\] .+ # $"
NODE_PROMPT = r"ubuntu@[\w-]+:\S*\$ $"


@pytest.fixture
def terminal(cluster: DeployedCluster) -> Iterator[Terminal]:
    """Open a shell on a terminal, like `make local-aws`."""
    terminal = Terminal(SHELL, directory=REPOSITORY, environment=cluster.user.environment)
    terminal.expect(LOCAL_PROMPT)
    yield terminal
    terminal.type("exit\n")
    terminal.wait_for_end()
    terminal.close()
    Path.home().joinpath(".ssh/config").unlink(missing_ok=True)


@pytest.mark.parametrize("login", ["dlcluster ssh", "ssh -A deeplearning-master"])
def test_ctrl_c_interrupts_a_remote_command(cluster: DeployedCluster, terminal: Terminal, login: str) -> None:
    terminal.type("dlcluster ssh-config >> ~/.ssh/config\n")
    terminal.expect(LOCAL_PROMPT)
    terminal.type(f"{login}\n")
    terminal.expect(NODE_PROMPT)
    terminal.type("ssh -o BatchMode=yes deeplearning-worker2 hostname\n")
    terminal.expect(cluster.on("deeplearning-worker2", "hostname"))
    terminal.expect(NODE_PROMPT)
    terminal.type("sh -c 'echo begun; exec sleep 300'\n")
    terminal.expect("begun\n")
    terminal.type(CTRL_C)
    terminal.expect(NODE_PROMPT)
    terminal.type("echo code $?; exit\n")
    terminal.expect("code 130")
    terminal.expect(LOCAL_PROMPT)


def test_status_shows_ec2s_state_of_each_instance(cluster: DeployedCluster) -> None:
    lines = cluster.user.output("local-aws", "status").splitlines()[1:]
    shown = {words[0]: words[1:] for words in map(str.split, lines)}
    aliases = {cluster.on(f"deeplearning-{alias}", "hostname"): alias for alias in ("master", "worker2", "worker3")}
    for instance in cluster.instances:
        alias = aliases["ip-" + instance["PrivateIpAddress"].replace(".", "-")]
        name = next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "Name")
        public = instance.get("PublicIpAddress", "-")
        expected = [name, alias, "running", "ready", instance["PrivateIpAddress"], public]
        assert shown[instance["InstanceId"]][:6] == expected
