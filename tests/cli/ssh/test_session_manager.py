"""Test logins to a private cluster: what is printed, what the plugin gets, what is refused, and a login through one."""

import getpass
import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from cli.aws.clusters import Cluster
from cli.aws.scaling import ScalingGroups
from cli.errors import EXIT_FAILED, EXIT_NO_CLUSTER, EXIT_USAGE, ClusterError
from cli.main import main
from cli.ssh.master_connection import SshTarget, run_command
from cli.ssh.session_manager import PluginCall, PluginSession
from tests.cli.moto_cluster import REGION, Deploy, MotoCluster, error_line, put_members
from tests.launcher.sshd import make_key, sshd_nodes

TOKEN = "a-secret-token"
CLUSTER = Cluster(name="demo", stack_name="demo", table="t-1", login_user="ubuntu", networks_text="", is_private=True)


@pytest.fixture
def cluster(deploy: Deploy) -> MotoCluster:
    return deploy(is_private=True)


def install_plugin(directory: Path, monkeypatch: pytest.MonkeyPatch, *, version: str = "1.2.804.0") -> Path:
    plugin = directory / "session-manager-plugin"
    plugin.write_text(f"#!/bin/sh\necho {version}\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return plugin


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_plugin(tmp_path, monkeypatch)


Answer = Callable[[dict[str, Any]], dict[str, Any]]


def answer_start_session(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    """Give StartSession, which moto lacks, an answer."""
    real = BaseClient._make_api_call  # type: ignore[attr-defined]

    def call(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        if operation != "StartSession":
            return real(client, operation, parameters)
        try:
            return answer(parameters)
        except ClientError as error:
            raise client.exceptions.from_code(error.response["Error"]["Code"])(error.response, operation) from None

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", call)


def refusing(code: str, message: str) -> Answer:
    def refuse(_parameters: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": code, "Message": message}}, "StartSession")

    return refuse


def session_answer(_parameters: dict[str, Any]) -> dict[str, Any]:
    return {"SessionId": "me-1", "TokenValue": TOKEN, "StreamUrl": "wss://example/me-1"}


def test_block_leads_each_login_through_a_session(cluster: MotoCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ssh-config"]) == 0
    block = capsys.readouterr().out
    assert not any(instance_id in block for instance_id in cluster.instance_ids)
    assert "ProxyJump" not in block
    assert "10.0.0.10" not in block
    hosts = [line.split()[1] for line in block.splitlines() if line.startswith("Host ")]
    proxies = [shlex.split(line.strip()) for line in block.splitlines() if "ProxyCommand" in line]
    assert hosts == ["demo-master", "demo-worker2", "demo-worker3"]
    assert [words[-2:] for words in proxies] == [["demo", "master"], ["demo", "worker2"], ["demo", "worker3"]]
    assert all(words[3] == "ssm-proxy" and words[words.index("--region") + 1] == REGION for words in proxies)
    for line in ("HostKeyAlias deeplearning-worker2", "StrictHostKeyChecking yes", "ServerAliveInterval 15"):
        assert line in block


@pytest.mark.parametrize(("node", "index"), [("master", 0), ("demo-master", 0), ("worker2", 1), ("3", 2)])
def test_ssm_proxy_becomes_the_plugin_and_hides_the_token(
    cluster: MotoCluster, plugin: Path, monkeypatch: pytest.MonkeyPatch, node: str, index: int
) -> None:
    asked: list[dict[str, Any]] = []
    became: list[tuple[Any, ...]] = []

    def answer(parameters: dict[str, Any]) -> dict[str, Any]:
        asked.append(parameters)
        return session_answer(parameters)

    def become(*arguments: Any) -> None:
        became.append(arguments)
        raise SystemExit(0)

    answer_start_session(monkeypatch, answer)
    monkeypatch.setattr("os.execve", become)
    with pytest.raises(SystemExit):
        main(["ssm-proxy", "--table", cluster.table, "--networks", "10.0.0.0/8", "demo", node])
    request = {
        "Target": cluster.instance_ids[index],
        "DocumentName": "AWS-StartSSHSession",
        "Parameters": {"portNumber": ["22"]},
    }
    assert asked == [request]
    [(path, words, environment)] = became
    assert path == str(plugin)
    assert words[:5] == (str(plugin), "AWS_SSM_START_SESSION_RESPONSE", REGION, "StartSession", "")
    assert (json.loads(words[5]), words[6].startswith("http://localhost:")) == (request, True)
    assert not any(TOKEN in word for word in words)
    assert json.loads(environment["AWS_SSM_START_SESSION_RESPONSE"])["TokenValue"] == TOKEN


@pytest.mark.usefixtures("plugin")
def test_unknown_cluster_and_node_are_reported_with_the_known_ones(
    cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ssm-proxy", "other", "master"]) == EXIT_NO_CLUSTER
    assert error_line(capsys) == "no cluster 'other' in eu-west-1; clusters there: demo"
    assert main(["ssm-proxy", "demo", "worker9"]) == EXIT_USAGE
    assert error_line(capsys).startswith("no node 'worker9' in cluster demo; its nodes: master (i-")


@pytest.mark.parametrize("node", ["master", "worker2", "worker9"])
@pytest.mark.parametrize("state", ["removed", "ended"])
def test_paused_cluster_is_reported_with_the_command_to_resume(
    cluster: MotoCluster, node: str, state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if state == "removed":
        put_members(cluster.table, [])
    else:
        boto3.client("ec2", region_name=REGION).terminate_instances(InstanceIds=list(cluster.instance_ids))
    paused = ScalingGroups(names=("g",), instance_ids=(), desired=0, since=datetime.now(timezone.utc))
    monkeypatch.setattr("cli.node_groups.paused_error.find_groups", lambda *_: paused)
    known = ["--table", cluster.table, "--networks", "10.0.0.0/8"]
    assert main(["ssm-proxy", *known, "demo", node]) == EXIT_FAILED
    assert error_line(capsys) == "the cluster is paused: dlcluster resume brings its nodes back"
    assert main(["jobs"]) == EXIT_FAILED
    assert error_line(capsys) == "the cluster is paused: dlcluster resume brings its nodes back"


@pytest.mark.usefixtures("plugin", "cluster")
@pytest.mark.parametrize(
    ("code", "message", "shown"),
    [
        ("AccessDeniedException", "not yours", "AWS refused StartSession: AccessDeniedException: not yours"),
        ("TargetNotConnected", "i-1 is not connected", " is not connected to Session Manager after 0 s: "),
    ],
)
@pytest.mark.parametrize("line", ["ssm-proxy demo worker2", "run -- true", "jobs"])
def test_reason_why_no_session_starts_is_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    code: str,
    message: str,
    shown: str,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cli.ssh.session_manager.CONNECTED_TIMEOUT_S", 0)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    answer_start_session(monkeypatch, refusing(code, message))
    assert main(line.split()) == EXIT_FAILED
    assert shown in error_line(capsys)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("line", ["ssm-proxy demo master", "jobs"])
def test_no_session_starts_with_a_missing_or_old_plugin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str
) -> None:
    answer_start_session(monkeypatch, lambda _parameters: pytest.fail("a session was started"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(line.split()) == EXIT_FAILED
    shown = error_line(capsys)
    assert shown.startswith("session-manager-plugin is not installed; logins to a private cluster need it: http")
    install_plugin(tmp_path, monkeypatch, version="1.2.497.0")
    assert main(line.split()) == EXIT_FAILED
    assert error_line(capsys).startswith("session-manager-plugin must be newer than 1.2.497.0, got 1.2.497.0: https://")


@pytest.mark.usefixtures("plugin")
def test_forged_record_leads_no_session_to_another_instance(
    cluster: MotoCluster, deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody who is root on the master can write the record, so EC2 must confirm it."""
    other = deploy("other", private=["10.9.0.4"], host_keys=["ssh-ed25519 AAAA"])
    answer_start_session(monkeypatch, lambda _parameters: pytest.fail("a session was started"))
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBwQ0Y3S4f0Yq4V8v0y1Q9jv8t5oQ8k8yq2hJm1m3X8k"
    row = {"node_index": 1, "instance_id": other.instance_ids[0], "address": "10.9.0.4", "node_type": "master"}
    put_members(cluster.table, [{**row, "host_key": key}])
    assert main(["ssm-proxy", "demo", "master"]) == EXIT_FAILED
    assert "which is not the cluster's: its tag deeplearning:cluster must be demo, EC2 says 'other'" in error_line(
        capsys
    )


# ---- a login ----

CARRY = """
import os, socket, sys, threading, time
os.write(1, b"\\nStarting session with SessionId: user-0123\\n")
time.sleep(float(os.environ.get("HANDSHAKE_S", "0")))
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def send():
    while data := os.read(0, 65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := connection.recv(65536):
    os.write(1, data)
os._exit(0)
"""


def session_to(address: str, port: int) -> Callable[[], PluginCall]:
    return lambda: PluginCall(
        command=(sys.executable, "-c", CARRY, address, str(port)), environment={"HANDSHAKE_S": "2.5"}
    )


def test_command_runs_through_a_plugin(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    authorized = make_key(tmp_path / "identity")
    with sshd_nodes(tmp_path, ["127.0.0.61"], authorized=authorized) as [node]:
        target = SshTarget(
            address="deeplearning-master",
            user=getpass.getuser(),
            host_key=node.host_key,
            identity=str(tmp_path / "identity"),
            start_session=session_to("127.0.0.61", node.port),
        )
        command = "head -c 3000000 /dev/zero; exit 9"
        assert run_command(target, command, stdout_fd=1, stderr_fd=2) == 9
    assert capfdbinary.readouterr().out == bytes(3000000)


def test_ctrl_c_on_the_terminal_does_not_reach_the_plugin(tmp_path: Path) -> None:
    """Otherwise AWS's plugin would end the session, and with it the command on the node."""
    script = "import os, time; os.write(1, b'SSH-%d\\n' % os.getsid(0)); time.sleep(60)"
    with (tmp_path / "errors").open("w+b") as errors:
        session = PluginSession(PluginCall(command=(sys.executable, "-c", script), environment={}), errors=errors)
        try:
            session.wait_for_server()
            line = session.socket.recv(100)
        finally:
            session.end()
    # The terminal's signals go only to the processes of its session.
    assert int(line.removeprefix(b"SSH-")) != os.getsid(0)


STALL = CARRY.replace("    os.write(1", "    if os.path.exists(sys.argv[3]): threading.Event().wait()\n    os.write(1")


@pytest.mark.timeout(60)
def test_silent_node_behind_the_plugin_counts_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin itself stays alive, connected to AWS."""
    monkeypatch.setattr("cli.ssh.master_connection.KEEPALIVE_TIMEOUT_S", 0.5)
    monkeypatch.setattr("cli.ssh.master_connection.KEEPALIVE_S", 0.1)
    authorized = make_key(tmp_path / "identity")
    with sshd_nodes(tmp_path, ["127.0.0.62"], authorized=authorized) as [node]:
        words = (sys.executable, "-c", STALL, "127.0.0.62", str(node.port), str(tmp_path / "silent"))
        target = SshTarget(
            address="deeplearning-master",
            user=getpass.getuser(),
            host_key=node.host_key,
            identity=str(tmp_path / "identity"),
            start_session=lambda: PluginCall(command=words, environment={}),
        )
        with pytest.raises(ClusterError, match="the connection to deeplearning-master was lost"):
            run_command(target, f"touch {shlex.quote(str(tmp_path / 'silent'))}; sleep 5", stdout_fd=1, stderr_fd=2)
