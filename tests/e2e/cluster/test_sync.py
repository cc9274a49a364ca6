"""Test that files reach every node, with the cluster's own key, security groups, roles and bucket."""

import shlex

import pytest

from tests.e2e.conftest import Cluster, aliases

MASTER = "deeplearning-worker1"


def launch(cluster: Cluster, arguments: str, *, cwd: str = "work") -> str:
    """Run launch on the master; return both streams and the exit code."""
    script = f"mkdir -p {cwd}; cd {cwd}; launch {arguments} 2>&1; echo exit code $?"
    return cluster.on(MASTER, f"bash -lc {shlex.quote(script)}")


def on_all(text: str) -> set[str]:
    return {f"{alias} [0] {text}" for alias in aliases()}


@pytest.fixture(scope="module")
def work(cluster: Cluster) -> None:
    cluster.on(MASTER, "mkdir -p work/pkg work/.git; echo 'print(6 * 7)' > work/pkg/run.py; touch work/.git/config")


@pytest.mark.usefixtures("work")
def test_current_directory_is_copied_to_every_node(cluster: Cluster) -> None:
    output = launch(cluster, '--sync-dst-dir "/tmp/a copy" "pwd; python3 pkg/run.py; ls -A"').splitlines()
    assert on_all("/tmp/a copy") | on_all("42") | on_all("pkg") < set(output)
    assert not on_all(".git") & set(output)
    assert "exit code 0" in output
    again = launch(cluster, '--sync-dst-dir "/tmp/a copy" true')
    assert again == "exit code 0"


@pytest.mark.usefixtures("work")
def test_the_masters_own_directory_may_be_the_destination(cluster: Cluster) -> None:
    output = launch(cluster, '--sync-dst-dir ~/work "python3 pkg/run.py"').splitlines()
    assert on_all("42") < set(output)
    assert any(line.startswith("launch: 1 file, 0.0 MB, sent to 2 nodes") for line in output)
    assert cluster.on(MASTER, "ls -A work") == ".git\npkg"


@pytest.mark.usefixtures("work")
def test_job_does_not_start_without_its_files(cluster: Cluster) -> None:
    cluster.on("deeplearning-worker3", "mkdir -p locked; chmod 555 locked")
    output = launch(cluster, "--sync-dst-dir locked 'echo started'")
    assert "started" not in output.replace("nothing started", "")
    assert output.splitlines()[-2:] == [
        "launch: nothing started, 1 of 3 nodes: deeplearning-worker3: /home/ubuntu/locked/pkg: Permission denied",
        "exit code 1",
    ]


def test_every_node_fetches_from_the_clusters_bucket(cluster: Cluster) -> None:
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


def test_empty_s3_prefix_is_an_error(cluster: Cluster) -> None:
    output = launch(cluster, '--sync-s3 "s3://$DEEPLEARNING_BUCKET/nothing" data "echo started"').splitlines()
    assert output[-2].startswith("launch: nothing started, 3 of 3 nodes: deeplearning-worker1 and 2 more: s3://")
    assert output[-2].endswith("/nothing is empty")
    assert output[-1] == "exit code 1"
    assert len(output) == 2
