"""Test that a restart does not wait for nodes that the cluster no longer has."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from launcher.hosts.hostfile import Host, HostSource
from launcher.job import restarts
from launcher.spec import RestartPolicy
from launcher.transport.protocol import FrameType
from tests.launcher.example_job import JOB


def test_restart_waits_only_for_nodes_that_the_cluster_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(hosts: Sequence[Host], **_: object) -> tuple[list[SimpleNamespace], list[str]]:
        return [SimpleNamespace(host=host) for host in hosts], []

    async def gather(declared: int) -> restarts.ReachableNodes:
        monkeypatch.setattr(restarts, "declared_nodes", lambda: declared)
        return await asyncio.wait_for(restarts.gather_nodes(job, streams), timeout=0.2)

    monkeypatch.setattr(restarts, "connect_available", connect)
    monkeypatch.setattr(restarts, "nodes_without_framework", AsyncMock(return_value=("", [])))
    streams: Any = {FrameType.STDOUT: SimpleNamespace(reader_has_gone=lambda: False)}
    (tmp_path / "hosts").write_text("one\n")
    source = HostSource(path=tmp_path / "hosts", slots=1, default_slots=1, of_cluster=True)
    policy = RestartPolicy(max_restarts=1, min_nodes=2, rejoin_timeout_s=600)
    job = replace(JOB, host_source=source, restart_policy=policy).with_hosts((Host(name="one"), Host(name="two")))
    reachable = asyncio.run(gather(declared=1))
    assert [connection.host.name for connection in reachable.connections] == ["one"]
    assert reachable.reasons == ["the cluster declares 1 node now"]
    with pytest.raises(TimeoutError):
        asyncio.run(gather(declared=2))
