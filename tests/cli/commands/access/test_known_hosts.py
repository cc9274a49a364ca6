"""Test dlcluster known-hosts, for which ssh waits at each connection."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.aws.clients import Clients
from cli.main import main
from tests.cli.moto_cluster import KEY, NETWORKS, Deploy, error_line

PROGRAM = Path(__file__).parents[4] / "bin" / "dlcluster"


def test_known_hosts_prints_the_host_keys_of_the_table(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [f"{KEY[:-1]}{letter}" for letter in "abc"]
    ids = deploy(host_keys=keys).instance_ids
    assert main(["known-hosts", "deeplearning-worker2"]) == 0
    assert capsys.readouterr().out == f"deeplearning-worker2,{ids[1]},10.0.1.20 {keys[1]}\n"
    assert main(["known-hosts"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"deeplearning-master,deeplearning-worker1,{ids[0]},10.0.0.10 {keys[0]}\n")
    assert out.count("\n") == 3


def test_known_hosts_with_a_table_needs_no_other_service(
    deploy: Deploy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_cluster = deploy()
    for service in ("cloudformation", "ec2"):
        monkeypatch.delattr(Clients, service)
    assert (
        main(
            [
                "known-hosts",
                "--cluster",
                "demo",
                "--table",
                moto_cluster.table,
                "--networks",
                NETWORKS,
                "deeplearning-worker3",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out == f"deeplearning-worker3,{moto_cluster.instance_ids[2]},10.0.1.30 {KEY}\n"


def test_known_hosts_fails_when_the_table_is_deleted(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy()
    assert (
        main(["known-hosts", "--cluster", "demo", "--table", "old", "--networks", NETWORKS, "deeplearning-worker3"])
        == 1
    )
    sentence = "table old of cluster demo no longer exists; if it was redeployed, run dlcluster ssh-config again"
    assert error_line(capsys) == sentence


def test_missing_table_and_name_are_reported(aws: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["known-hosts", "--table", "nope", "--networks", NETWORKS]) == 1
    assert (
        error_line(capsys)
        == "table nope of the cluster no longer exists; if it was redeployed, run dlcluster ssh-config again"
    )


@pytest.mark.parametrize("table", ["", "a b c", "٣٣٣"])
def test_invalid_table_name_is_a_usage_error(
    aws: dict[str, str], capsys: pytest.CaptureFixture[str], table: str
) -> None:
    assert main(["known-hosts", "--table", table]) == 2
    rule = "the name of a DynamoDB table, 3 to 255 letters, digits and _ - ."
    assert error_line(capsys) == f"--table must be {rule}, got {table!r}"


def test_ssh_block_of_an_older_release_still_works(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    moto_cluster = deploy()
    assert main(["known-hosts", "--cluster", "demo", "--table", moto_cluster.table, "deeplearning-worker3"]) == 0
    assert capsys.readouterr().out == f"deeplearning-worker3,{moto_cluster.instance_ids[2]},10.0.1.30 {KEY}\n"


def test_parse_networks_rejects_invalid_text(aws: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["known-hosts", "--table", "table", "--networks", "10.0.0.1/8"]) == 2
    assert error_line(capsys) == "--networks must be 1 to 8 IPv4 blocks such as 10.0.0.0/16, got '10.0.0.1/8'"


def test_known_hosts_imports_only_what_it_needs(deploy: Deploy, aws: dict[str, str]) -> None:
    # ssh waits for it, even twice on the way to a worker.
    words = ["known-hosts", "--table", deploy().table, "--networks", NETWORKS]
    program = f"import sys; from cli.main import main; main({words!r}); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=aws, cwd=PROGRAM.parents[1], capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "cli.aws.nodes" in done.stdout
    assert not [name for name in ("paramiko", "cli.preflight", "stacks") if f"'{name}'" in done.stdout]
