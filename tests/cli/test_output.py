"""Test results for programs and people: JSON, plain lines in a pipe, tables with color on a terminal."""

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from bootstrap.contract import VERSION
from cli.main import main
from tests.cli.moto_cluster import KEY, REGION, RELEASE, Deploy, put_membership

PROGRAM = Path(__file__).parents[2] / "bin" / "dlcluster"
GREEN = "\x1b[32m"


def printed_json(words: list[str], capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, Any]:
    assert main(words) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found.pop("version") == 1
    return found


def test_status_as_json(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    moto_cluster = deploy()
    ids = moto_cluster.instance_ids[:2]
    put_membership(moto_cluster.table, ids, private=["10.0.0.10", "10.0.1.20"], host_keys=[KEY] * 2, desired_nodes=3)
    boto3.client("ec2", region_name=REGION).stop_instances(InstanceIds=[ids[1]])
    found = printed_json(["status", "--json"], capsys)
    nodes = found.pop("nodes")
    assert found == {
        "cluster": "demo", "region": REGION, "generation": 7, "desired_nodes": 3, "running_nodes": 1,
        "missing_nodes": 2, "reasons": [], "expires": None, "capacity_block": None,
        "warnings": [], "shared_storage": None,
        "release": {"dlcluster": VERSION, "stack": RELEASE, "differences": []},
        "usd_per_hour": None, "usd_spent": None, "idle_stop": None, "idle_since": None, "idle_pauses_at": None,
    }  # fmt: skip
    zone = nodes[0]["zone"]
    same = {"instance_type": "c5.large", "zone": zone, "draining": False, "shared_storage": None, "setup": None}
    same |= {"release": RELEASE}
    assert nodes == [
        {
            "index": 1, "name": "master", "instance_id": ids[0], "private_address": "10.0.0.10",
            "public_address": "203.0.113.5", "state": "running", **same,
        },
        {
            "index": 2, "name": "worker2", "instance_id": ids[1], "private_address": "10.0.1.20",
            "public_address": None, "state": "stopped", **same,
        },
    ]  # fmt: skip


def test_why_as_json(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy()
    assert printed_json(["why", "--json", "--cluster", "demo"], capsys) == {
        "cluster": "demo", "region": REGION, "stack": {"name": "demo-stack", "status": "CREATE_COMPLETE"},
        "nodes": "all 3 nodes", "failures": [], "activities": [], "log_group": None, "logs": [], "left_buckets": [],
        "unanswered": [],
    }  # fmt: skip


def test_preflight_as_json(
    aws: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdk.json").write_text('{"context": {"cluster": {"cluster_name": "demo", "key_name": "me"}}}')
    monkeypatch.chdir(tmp_path)
    found = printed_json(["preflight", "--json"], capsys, code=1)
    assert found["ok"] is False
    [pair] = [finding for finding in found["findings"] if finding["subject"] == "key pair"]
    assert (pair["level"], pair["sentence"]) == ("problem", "there is no key pair 'me' in eu-west-1")
    assert pair["fix"].startswith("aws ec2 import-key-pair")


def on_terminal(words: list[str], **variables: str) -> str:
    """Return what dlcluster writes to its own terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", **variables}
        os.execve(sys.executable, [sys.executable, str(PROGRAM), *words], environment)
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # every process has closed it
            break
        shown += data
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    return shown.decode().replace("\r", "")


def test_terminal_gets_a_table_with_color(deploy: Deploy) -> None:
    deploy()
    shown = on_terminal(["status"])
    assert "demo: 3 of 3 nodes, generation 7\n" in shown
    assert "────" in shown
    assert f"{GREEN}running" in shown


def test_no_color_disables_color_on_a_terminal(deploy: Deploy) -> None:
    deploy()
    shown = on_terminal(["status"], NO_COLOR="1")
    assert "────" in shown
    assert GREEN not in shown
