"""Provide a master whose answers the test defines."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from cli.aws.nodes import ClusterMembership
from cli.cluster_context import ClusterContext
from cli.jobs import start
from cli.ssh.master_connection import MasterConnection
from tests.cli.jobs.master import SENT, Master, member


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Master:
    made = Master()
    (tmp_path / "train.py").write_text("import torch.distributed\n")
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def connected(_: object) -> Iterator[tuple[ClusterContext, MasterConnection]]:
        members = tuple(member(index) for index in range(1, made.nodes + 1))
        membership = ClusterMembership(
            generation=1, desired_nodes=made.nodes, members=members, master_trains=made.master_trains
        )
        cluster = type("Cluster", (), {"name": "demo", "release": made.release})
        context = type("Context", (), {"cluster": cluster, "membership": membership})
        yield cast(ClusterContext, context), cast(MasterConnection, made)

    for command in ("run", "jobs", "logs", "stop", "push"):
        monkeypatch.setattr(f"cli.commands.jobs.{command}.connect_to_master", connected)
    monkeypatch.setattr(start, "upload", lambda connection, directory, to, show: SENT)
    return made
