"""Run ``dlcluster bake`` in an account of the tests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.aws.nodes import ClusterMembership
from cli.main import main
from tests.cli.image.account import SHA256, Account, member


@pytest.fixture
def bake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Run the command in a directory with a cdk.json."""
    monkeypatch.chdir(tmp_path)
    Path("cdk.json").write_text(json.dumps({"context": {"cluster": {"cluster_name": "demo", "key_name": "me"}}}))

    def run(account: Account, *words: str, setup: str | None = f"s3://assets/a.zip {SHA256} 900") -> int:
        cluster = SimpleNamespace(name="demo", setup=setup, release=account.release, table="table", networks=())
        members = account.members or tuple(member(index) for index in (1, 2, 3))
        clients = SimpleNamespace(
            ec2=account, autoscaling=account, dynamodb=account, sts=account, cloudformation=None, region="eu-west-1"
        )
        membership = ClusterMembership(generation=1, desired_nodes=3, members=members)
        context: Any = SimpleNamespace(cluster=cluster, clients=clients, membership=membership)

        @contextmanager
        def connect_to_master(_selection: object) -> Iterator[Any]:
            yield context, account

        def read_membership(*_arguments: Any, **_named: Any) -> ClusterMembership:
            account.step("leave")
            left = tuple(candidate for candidate in members if candidate.instance_id not in account.detached)
            return ClusterMembership(generation=2, desired_nodes=3, members=left)

        monkeypatch.setattr("cli.commands.image.bake.connect_to_master", connect_to_master)
        monkeypatch.setattr("cli.image.worker.read_membership", read_membership)
        monkeypatch.setattr("cli.cluster_lock.find_cluster", lambda *_, **__: cluster)
        monkeypatch.setattr("cli.image.images.time.sleep", lambda _: None)
        return main(["bake", *words])

    return run
