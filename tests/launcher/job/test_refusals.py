"""Test which failed checks are refusals, after which a durable job is not restarted."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from launcher.errors import LaunchError
from launcher.hosts.hostfile import Host
from launcher.job import framework_check
from launcher.job.checks import read_secrets_on_nodes
from launcher.job.failure import Failure, FailureCause
from launcher.transport import rpc
from launcher.transport.connection import RunnerConnection
from tests.launcher.example_job import JOB

HOST = Host(name="a")
NODE: Any = type("Node", (), {"host": HOST})()


def failure_of(check: Any) -> Failure:
    with pytest.raises(LaunchError) as caught:
        asyncio.run(check)
    return Failure.of_error(caught.value)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (rpc.RemoteError("a", "ssm:/x: is not there", only_lost_neighbor=False), FailureCause.REFUSAL),
        (LaunchError("a: connection lost"), FailureCause.OTHER),
    ],
)
def test_unreadable_secret_is_a_refusal_and_a_lost_node_is_not(
    monkeypatch: pytest.MonkeyPatch, error: LaunchError, *, cause: FailureCause
) -> None:
    async def call(_connection: RunnerConnection, **_values: object) -> None:
        raise error

    monkeypatch.setattr(rpc, "call", call)
    job = replace(JOB, secrets={"KEY": "ssm:/x"})
    assert failure_of(read_secrets_on_nodes(job, [NODE])).cause is cause


def test_nodes_take_turns_at_parameter_store(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def call(_connection: RunnerConnection, **_values: object) -> None:
        pass

    monkeypatch.setattr(rpc, "call", call)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    both = {"KEY": "ssm:/x", "SAME": "ssm:/x", "TOKEN": "ssm:/y", "HUB": "secretsmanager:hub"}
    asyncio.run(read_secrets_on_nodes(replace(JOB, secrets=both), [NODE] * 64))
    assert pauses == pytest.approx([place * 2 / 20 for place in range(64)])
    pauses.clear()
    asyncio.run(read_secrets_on_nodes(replace(JOB, secrets={"HUB": "secretsmanager:hub"}), [NODE] * 64))
    assert set(pauses) == {0.0}


def test_missing_framework_or_environment_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lacking(*_words: object) -> tuple[str, list[Any]]:
        return "horovod", [NODE]

    async def call(_connection: RunnerConnection, **_values: object) -> dict[str, bool]:
        return {"has_python": False}

    monkeypatch.setattr(framework_check, "nodes_without_framework", lacking)
    monkeypatch.setattr(rpc, "call", call)
    assert failure_of(framework_check.check_framework(JOB, [NODE])).cause is FailureCause.REFUSAL
    assert failure_of(framework_check.check_venv(replace(JOB, venv="/venv"), [NODE])).cause is FailureCause.REFUSAL
