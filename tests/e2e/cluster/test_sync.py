"""Test that files reach every node, with the cluster's own key, security groups, roles and bucket."""

import shlex
import time
from collections.abc import Iterator

import pytest

from local.faults.clients import client
from tests.e2e.support.deployed_cluster import DeployedCluster, aliases

MASTER = "deeplearning-worker1"
REFUSED_S = 120.0


def launch(cluster: DeployedCluster, arguments: str, *, cwd: str = "work") -> str:
    """Run launch on the master; return both streams and the exit code."""
    script = f"mkdir -p {cwd}; cd {cwd}; launch {arguments} 2>&1; echo exit code $?"
    return cluster.on(MASTER, f"bash -lc {shlex.quote(script)}")


def refusal(cluster: DeployedCluster, arguments: str) -> list[str]:
    """Return the lines of a launch that every node refuses, once it names them all.

    It waits launcher.sync.all_nodes.CAUSE_TIMEOUT_S for the other nodes after the first answer, and shows its progress
    after some seconds: a busy machine may take longer.
    """
    deadline = time.monotonic() + REFUSED_S
    while True:
        lines = launch(cluster, arguments, cwd=".").splitlines()
        assert lines[-1] == "exit code 1", lines
        if len(lines) == 2 and ": 3 of 3 nodes: " in lines[0]:
            return lines
        assert time.monotonic() < deadline, f"waited {REFUSED_S:.0f} s for the refusal of all nodes, got {lines}"


def on_all(text: str) -> set[str]:
    return {f"{alias} [0] {text}" for alias in aliases()}


@pytest.fixture(scope="module")
def work(cluster: DeployedCluster) -> None:
    cluster.on(MASTER, "mkdir -p work/pkg work/.git; echo 'print(6 * 7)' > work/pkg/run.py; touch work/.git/config")


@pytest.mark.usefixtures("work")
def test_current_directory_is_copied_to_every_node(cluster: DeployedCluster) -> None:
    output = launch(cluster, '--sync-dst-dir "/tmp/a copy" "pwd; python3 pkg/run.py; ls -A"').splitlines()
    assert on_all("/tmp/a copy") | on_all("42") | on_all("pkg") < set(output)
    assert not on_all(".git") & set(output)
    assert "exit code 0" in output
    again = launch(cluster, '--sync-dst-dir "/tmp/a copy" true')
    assert again == "exit code 0"


@pytest.mark.usefixtures("work")
def test_masters_own_directory_may_be_the_destination(cluster: DeployedCluster) -> None:
    output = launch(cluster, '--sync-dst-dir ~/work "python3 pkg/run.py"').splitlines()
    assert on_all("42") < set(output)
    assert any(line.startswith("launch: 1 file, 0.0 MB, sent to 2 nodes") for line in output)
    assert cluster.on(MASTER, "ls -A work") == ".git\npkg"


@pytest.mark.usefixtures("work")
def test_job_does_not_start_without_its_files(cluster: DeployedCluster) -> None:
    cluster.on("deeplearning-worker3", "mkdir -p locked; chmod 555 locked")
    output = launch(cluster, "--sync-dst-dir locked 'echo started'")
    assert "started" not in output.replace("nothing started", "")
    assert output.splitlines()[-2:] == [
        "launch: nothing started: 1 of 3 nodes: deeplearning-worker3: /home/ubuntu/locked/pkg: Permission denied",
        "exit code 1",
    ]


def test_every_node_fetches_from_the_clusters_bucket(cluster: DeployedCluster) -> None:
    cluster.on(MASTER, 'echo words > data.txt; aws s3 cp --quiet data.txt "s3://$DEEPLEARNING_BUCKET/set/a/data.txt"')
    output = launch(cluster, '--sync-s3 "s3://$DEEPLEARNING_BUCKET/set" data "cat ~/data/a/data.txt"', cwd=".")
    assert on_all("words") | {"exit code 0"} < set(output.splitlines())
    assert any(line.startswith("launch: 3 files, 0.0 MB, fetched by 3 nodes in ") for line in output.splitlines())
    cluster.on(MASTER, 'echo other > data.txt; aws s3 cp --quiet data.txt "s3://$DEEPLEARNING_BUCKET/set/a/data.txt"')
    cluster.on("deeplearning-worker2", "echo mine > data/mine; echo wrong > data/a/data.txt")
    output = launch(cluster, '--sync-s3 "s3://$DEEPLEARNING_BUCKET/set/" data "cat ~/data/a/data.txt"', cwd=".")
    assert on_all("other") | {"exit code 0"} < set(output.splitlines())
    assert cluster.on("deeplearning-worker2", "cat data/mine") == "mine"
    shared = launch(
        cluster, '--sync-s3-shard --sync-s3 "s3://$DEEPLEARNING_BUCKET/set" share "find ~/share -type f"', cwd="."
    )
    assert len([line for line in shared.splitlines() if line.endswith("/share/a/data.txt")]) == 1


def test_empty_s3_prefix_is_an_error(cluster: DeployedCluster) -> None:
    output = refusal(cluster, '--sync-s3 "s3://$DEEPLEARNING_BUCKET/nothing" data "echo started"')
    assert output[-2].startswith("launch: nothing started: 3 of 3 nodes: deeplearning-worker1 and 2 more: s3://")
    assert output[-2].endswith("/nothing is empty")
    assert output[-1] == "exit code 1"
    assert len(output) == 2


@pytest.fixture(scope="module")
def buckets() -> Iterator[None]:
    """Store an object in each bucket of the user; the cluster's settings name parts of the first two."""
    s3 = client("s3")
    stored = {"team-data": "vision/a.txt", "team-results": "theirs/a.txt", "team-other": "set/a.txt"}
    for bucket, key in stored.items():
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key=key, Body=b"their words\n")
    yield
    for bucket in stored:
        for found in s3.list_objects_v2(Bucket=bucket)["Contents"]:
            s3.delete_object(Bucket=bucket, Key=found["Key"])
        s3.delete_bucket(Bucket=bucket)


@pytest.fixture
def _refusals_expected(cluster: DeployedCluster) -> Iterator[None]:
    """Mark the nodes' calls as made to be refused, for after_all_tests/test_aws_calls.py."""
    mark = "mkdir -p .aws && printf '[default]\\nsdk_ua_app_id = abuse\\n' > .aws/config"
    for alias in aliases():
        cluster.on(alias, mark)
    yield
    for alias in aliases():
        cluster.on(alias, "rm .aws/config")


@pytest.mark.usefixtures("buckets", "_refusals_expected")
def test_nodes_read_the_named_part_of_a_bucket_and_write_only_with_rw(cluster: DeployedCluster) -> None:
    output = launch(cluster, "--sync-s3 s3://team-data/vision vision 'cat ~/vision/a.txt'", cwd=".")
    assert on_all("their words") | {"exit code 0"} < set(output.splitlines())
    refused = ("- s3://team-data/vision/b.txt", "- s3://team-results/theirs/a.txt", "s3://team-results/theirs/a.txt -")
    for words in refused:
        printed = cluster.on(aliases()[-1], f"echo mine | aws s3 cp --only-show-errors {words} 2>&1 || true")
        assert "(AccessDenied)" in printed or "(403)" in printed, printed
    there = "s3://team-results/ours/b.txt"
    both = f"echo mine | aws s3 cp - {there} && aws s3 cp {there} -"
    assert cluster.on(aliases()[-1], both) == "mine"
    stored = client("s3").get_object(Bucket="team-results", Key="theirs/a.txt")["Body"].read()
    assert stored == b"their words\n"


@pytest.mark.usefixtures("buckets", "_refusals_expected")
def test_bucket_that_is_not_named_starts_nothing_and_one_line_names_the_setting(cluster: DeployedCluster) -> None:
    for path in ("team-other/set", "team-results/theirs"):
        output = refusal(cluster, f"--sync-s3 s3://{path} elsewhere 'echo started'")
        assert output == [
            "launch: nothing started: 3 of 3 nodes: deeplearning-worker1 and 2 more:"
            f" s3://{path}: this node may not read it: add {path} to data_buckets in cdk.json, then cdk deploy"
            " (a bucket of another account must allow it too: dlcluster preflight)",
            "exit code 1",
        ]
    for alias in aliases():
        assert cluster.on(alias, "ls -A elsewhere 2>/dev/null || true") == ""
