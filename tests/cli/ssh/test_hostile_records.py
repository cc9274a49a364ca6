"""Test that dlcluster refuses a membership forged on the master in one line, and runs no part of it."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import find, given

from bootstrap.cluster.record_validation import RecordError
from bootstrap.cluster.records import parse_membership
from bootstrap.contract import CLUSTER_TAG
from cli.aws.nodes import ClusterMembership, ClusterNode
from cli.main import main
from cli.ssh.config import LoginSettings, config_text, known_hosts_text, ssh_arguments
from cli.ssh.master_connection import SshTarget
from tests.bootstrap.forged_records import forged_items
from tests.bootstrap.identities import NETWORKS
from tests.cli.moto_cluster import (
    KEY,
    REGION,
    Deploy,
    MotoCluster,
    error_line,
    put_members,
    put_membership,
    set_addresses,
)

PROGRAM = Path(__file__).parents[3] / "bin" / "dlcluster"
COMMANDS = (["ssh", "worker2"], ["ssh-config"], ["known-hosts"], ["run", "--", "true"])
REFUSAL = r"cluster demo has a membership record that cannot be used: .* \(its master replaces it within a minute\)"


def rows(moto_cluster: MotoCluster, **forged: Any) -> list[dict[str, Any]]:
    """Return a master and a worker; the worker's row is the one to forge."""
    master, worker, _ = (
        {
            "node_index": node_index,
            "instance_id": name,
            "address": f"10.0.0.{node_index}",
            "node_type": "worker",
            "host_key": KEY,
        }
        for node_index, name in enumerate(moto_cluster.instance_ids, 1)
    )
    return [master | {"node_type": "master"}, worker | forged]


FORGED: dict[str, dict[str, Any]] = {
    "a command in the address": {"address": "x'$(touch MARKER)'"},
    "an option of ssh in the address": {"address": "-oProxyCommand=touch MARKER"},
    "lines in the address": {"address": "10.0.0.2\nHost *\n  ProxyCommand touch MARKER"},
    "an address elsewhere": {"address": "203.0.113.9"},
    "the master's address": {"address": "10.0.0.1"},
    "lines in the index": {"node_index": "2\nHost *\n  ProxyCommand touch MARKER"},
    "an index that is true": {"node_index": True},
    "an index above all": {"node_index": 10**9},
    "the master's index": {"node_index": 1},
    "a name for an instance id": {"instance_id": "i-$(touch MARKER)"},
    "another type": {"node_type": "worker\n"},
    "two keys in one": {"host_key": f"{KEY}\n@cert-authority * {KEY}"},
    "a command in the key": {"host_key": "ssh-ed25519 $(touch MARKER)"},
    "a key of another type inside": {"host_key": f"ssh-ed25519 {'A' * 68}"},
    "no key": {"host_key": None},
    "a word for a flag": {"draining": "no"},
}


def put_forged(moto_cluster: MotoCluster, forged: dict[str, Any], marker: Path) -> None:
    put_members(
        moto_cluster.table,
        rows(
            moto_cluster,
            **{k: v.replace("MARKER", str(marker)) if isinstance(v, str) else v for k, v in forged.items()},
        ),
    )


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_forged_membership_runs_no_command(
    deploy: Deploy, aws: dict[str, str], tmp_path: Path, forged: dict[str, Any]
) -> None:
    """Use the real ssh, which passes a proxy command to a shell before connecting."""
    marker = tmp_path / "marker"
    put_forged(deploy(public="127.0.0.99"), forged, marker)
    options = ["-o", "BatchMode=yes"]
    (tmp_path / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh {" ".join(options)} "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    done = subprocess.run(
        [sys.executable, PROGRAM, "ssh", "worker2", "--", "true"],
        env=aws | {"PATH": f"{tmp_path}:{os.defpath}", "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert not marker.exists()
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(f"dlcluster: {REFUSAL}\n", done.stderr)


@pytest.mark.parametrize(
    ("forgery", "words"),
    [*((forgery, ["status"]) for forgery in FORGED), *(("an address elsewhere", words) for words in COMMANDS)],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_forged_membership_is_refused_in_one_line(
    deploy: Deploy, tmp_path: Path, capsys: pytest.CaptureFixture[str], forgery: str, words: list[str]
) -> None:
    """Try each forgery with one command and each command with one forgery, as all read the record in one place."""
    put_forged(deploy(), FORGED[forgery], tmp_path / "marker")
    assert main(words) == 1
    assert re.fullmatch(REFUSAL, error_line(capsys))


@pytest.mark.parametrize(
    "attributes",
    [
        {"members": {"S": "[" * 100_000}},
        {"members": {"S": '[{"node_index": ' + "9" * 300_000 + "}]"}},
        {"members": {"L": []}},
        {"generation": {"S": "7"}},
        {"generation": {"N": "-1"}},
        {"desired_nodes": {"N": "1000000"}},
        {"version": {"N": "1"}},
    ],
    ids=["deep", "long", "list", "text", "negative", "many", "old"],
)
def test_record_of_another_form_is_refused_in_one_line(
    deploy: Deploy, capsys: pytest.CaptureFixture[str], attributes: dict[str, Any]
) -> None:
    moto_cluster, client = deploy(), boto3.client("dynamodb", region_name=REGION)
    item = client.get_item(TableName=moto_cluster.table, Key={"id": {"S": "membership"}})["Item"]
    client.put_item(TableName=moto_cluster.table, Item=item | attributes)
    assert main(["status"]) == 1
    assert re.fullmatch(REFUSAL, error_line(capsys))


def test_why_explains_a_bad_record(deploy: Deploy, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    put_forged(deploy(), {"address": "x'$(touch MARKER)'"}, tmp_path / "marker")
    assert main(["why", "--cluster", "demo"]) == 1
    assert re.search(rf"^part of the answer is missing: {REFUSAL}$", capsys.readouterr().out, re.MULTILINE)


# ---- a master that is not the cluster's: the record is well-formed, but EC2 disagrees ----


def elsewhere(moto_cluster: MotoCluster, deploy: Deploy) -> str:
    """Return the id of another cluster's master."""
    return deploy("other", public="198.51.100.9").instance_ids[0]


def untagged(moto_cluster: MotoCluster, deploy: Deploy) -> str:
    """Return the id of an instance of the account that belongs to no cluster."""
    name = elsewhere(moto_cluster, deploy)
    boto3.client("ec2", region_name=REGION).delete_tags(Resources=[name], Tags=[{"Key": CLUSTER_TAG, "Value": "other"}])
    return name


def tagged_alike(moto_cluster: MotoCluster, deploy: Deploy) -> str:
    """Return the id of an instance with the cluster's tag and an address of its own."""
    name = elsewhere(moto_cluster, deploy)
    set_addresses(name, private="10.9.9.9", public="198.51.100.9")
    boto3.client("ec2", region_name=REGION).create_tags(Resources=[name], Tags=[{"Key": CLUSTER_TAG, "Value": "demo"}])
    return name


def stopped(moto_cluster: MotoCluster, deploy: Deploy) -> str:
    """Return the id of the master, which is not running."""
    boto3.client("ec2", region_name=REGION).stop_instances(InstanceIds=[moto_cluster.instance_ids[0]])
    return moto_cluster.instance_ids[0]


def forgotten(moto_cluster: MotoCluster, deploy: Deploy) -> str:
    return "i-0123456789abcdef0"


NOT_OURS = "the membership record names {} as the master, which is not the cluster's: its "
MASTERS = {
    elsewhere: NOT_OURS + "tag deeplearning:cluster must be demo, EC2 says 'other'",
    untagged: NOT_OURS + "tag deeplearning:cluster must be demo, EC2 says none",
    tagged_alike: NOT_OURS + "private address must be 10.0.0.10, EC2 says '10.9.9.9'",
    stopped: "the cluster has no master now: it may be starting or being replaced ({} is stopped)",
    forgotten: "the cluster has no master now: it may be starting or being replaced ({} is gone)",
}


@pytest.mark.parametrize("words", [["ssh"], ["ssh", "worker2"], ["ssh-config"], ["run", "--", "true"]], ids=" ".join)
@pytest.mark.parametrize(("another", "message"), MASTERS.items(), ids=[master.__name__ for master in MASTERS])
def test_record_of_a_foreign_master_is_refused(
    deploy: Deploy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    another: Callable[[MotoCluster, Deploy], str],
    message: str,
    words: list[str],
) -> None:
    monkeypatch.setattr(os, "execvp", lambda *_: pytest.fail("ssh was run"))
    monkeypatch.setattr("cli.jobs.start.run_command", lambda *_, **__: pytest.fail("the command was run"))
    moto_cluster = deploy()
    name = another(moto_cluster, deploy)
    ids = [name, *moto_cluster.instance_ids[1:]]
    put_membership(moto_cluster.table, ids, private=["10.0.0.10", "10.0.1.20", "10.0.1.30"], host_keys=[KEY] * 3)
    assert main([words[0], "--cluster", "demo", *words[1:]]) == 1
    assert error_line(capsys) == message.format(name)


# ---- whatever passes the check is harmless to everything made from it ----

ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}"
NAME = r"deeplearning-(?:master|worker\d{1,4})"
BASE64 = r"[A-Za-z0-9+/]{68}"


def access(master: ClusterNode) -> LoginSettings:
    command = ("/usr/bin/python3", "/opt/dlcluster", "known-hosts", "--table", "table")
    return LoginSettings(
        cluster_name="demo",
        login_user="ubuntu",
        master=master,
        master_address="203.0.113.5",
        known_hosts_command=command,
    )


def accepted(item: dict[str, Any]) -> ClusterMembership | None:
    try:
        record = parse_membership(item, NETWORKS)
    except RecordError as error:
        message = str(error)
    else:
        message = ""
    assert message == "" or (message.isprintable() and message.isascii() and len(message) < 300)
    if message:
        return None
    members = tuple(map(ClusterNode.of, record.members))
    return ClusterMembership(generation=record.generation, desired_nodes=record.desired_nodes, members=members)


@given(forged_items())
def test_accepted_membership_cannot_inject_ssh_options(item: dict[str, Any]) -> None:
    membership = accepted(item)
    if membership is None or not (masters := [m for m in membership.members if m.node_type == "master"]):
        return
    known = '"/usr/bin/python3" "/opt/dlcluster" "known-hosts" "--table" "table" %H'
    for member in membership.members:
        words = ssh_arguments(access(masters[0]), member)
        *pairs, destination = words
        assert re.fullmatch(r"demo-(?:master|worker\d{1,4})", destination)
        options = dict(pair.split("=", 1) for pair in pairs[1::2])
        assert options["KnownHostsCommand"] == known
        assert re.fullmatch(ADDRESS, options["HostName"])
        assert re.fullmatch(r"deeplearning-worker\d{1,4}", options["HostKeyAlias"])
        if member != masters[0]:
            assert re.fullmatch(rf".* -W '\[{ADDRESS}\]:'%p demo-master", options["ProxyCommand"])
            assert not re.search(r"[`$;&|<>\n]", options["ProxyCommand"])


@given(forged_items())
def test_accepted_membership_cannot_inject_lines_into_files(item: dict[str, Any]) -> None:
    membership = accepted(item)
    if membership is None:
        return
    members = membership.members
    line = rf"(?:{NAME},)?{NAME},i-[0-9a-f]{{8,17}},{ADDRESS} ssh-ed25519 {BASE64}\n"
    assert re.fullmatch(rf"(?:{line}){{{len(members)}}}", known_hosts_text(members, None))
    masters = [member for member in members if member.node_type == "master"]
    if masters:
        text = config_text(access(masters[0]), members)
        assert text.count("\nHost ") + text.startswith("Host ") == len(members)
        assert all(re.fullmatch(r"Host [\w -]+|  [A-Z]\w+ [ -~]+|", row) for row in text.split("\n"))
        target = SshTarget(address="203.0.113.5", user="ubuntu", host_key=masters[0].host_key, identity=None)
        assert re.fullmatch(rf"ssh-ed25519 {BASE64}", target.host_key)


def test_generator_yields_acceptable_records() -> None:
    """Otherwise the two tests above would check nothing."""
    assert find(forged_items(), lambda item: (found := accepted(item)) is not None and len(found.members) > 1)
