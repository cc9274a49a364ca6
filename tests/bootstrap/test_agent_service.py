"""Test the agent's service: a bad configuration or a crash fails the deploy once."""

import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from botocore.exceptions import ClientError

from bootstrap import agent_service
from bootstrap.agent import Agent
from bootstrap.aws.clients import Clients
from bootstrap.aws.imds import Identity
from bootstrap.aws.log_shipping import LogShipper
from bootstrap.contract import NODE_CONFIG_FILE
from bootstrap.errors import ConfigError, MetadataError
from bootstrap.files.paths import under_root
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import LOG_GROUP, config_values


def write_config(root: Path, text: str) -> None:
    file = under_root(root, NODE_CONFIG_FILE)
    file.parent.mkdir(parents=True)
    file.write_text(text)


@pytest.fixture
def _instance(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the service on an instance that reaches moto."""

    def connect(_region: str) -> Clients:
        return cluster.clients

    monkeypatch.setattr(agent_service, "connect", connect)
    monkeypatch.setattr(agent_service, "read_identity", lambda: Identity(instance_id="i-1", address="10.0.0.1"))


@pytest.mark.usefixtures("_instance")
def test_bad_config_fails_the_deploy_at_once_and_once(cluster: SimulatedCluster, tmp_path: Path) -> None:
    write_config(tmp_path, json.dumps(config_values() | {"version": 2}))
    for _ in range(2):
        with pytest.raises(ConfigError, match="version must be 1, got 2"):
            agent_service.read_config(tmp_path)
    assert cluster.signals == [("WorkerGroup", "FAILURE", "i-1 bad-config")]


def test_missing_config_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/etc/deeplearning/node\.json must be written before"):
        agent_service.read_config(tmp_path)


@pytest.fixture
def _signal_handlers() -> Iterator[None]:
    """Restore the signal handlers of the process that runs the tests."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    old = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, old, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signal_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_service_ships_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def run_pass(_agent: Agent) -> float:
        logging.getLogger("bootstrap.test").info("last line")
        os.kill(os.getpid(), number)
        return 60.0

    shipper = LogShipper()
    shipped: list[str] = []
    monkeypatch.setattr(shipper, "ship", lambda: shipped.append("all"))
    monkeypatch.setattr(agent_service, "set_up_logging", lambda _file: shipper)
    monkeypatch.setattr(Agent, "run_pass", run_pass)
    write_config(tmp_path, json.dumps(config_values()))
    with pytest.raises(SystemExit) as stopped:
        agent_service.serve(tmp_path)
    assert stopped.value.code == 0
    assert shipped == ["all"]


@pytest.fixture
def shipper(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogShipper]:
    """Return the log's shipper, connected as a running agent leaves it."""
    made, log = LogShipper(), logging.getLogger("bootstrap")
    made.connect(cluster.clients.logs, group=LOG_GROUP, stream="i-1")
    log.addHandler(made)
    monkeypatch.setattr(agent_service, "set_up_logging", lambda _file: made)
    yield made
    log.removeHandler(made)


def crash(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("on purpose")


CRASHED = [("WorkerGroup", "FAILURE", "i-1 agent-crashed ZeroDivisionError")]


@pytest.mark.usefixtures("_signal_handlers", "_instance", "shipper")
@pytest.mark.parametrize(
    "where",
    ["bootstrap.agent.ensure_first_start_time", "bootstrap.agent_service.System", "bootstrap.agent.Agent.run_pass"],
)
def test_agent_crash_fails_the_deploy_once(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(where, crash)
    write_config(tmp_path, json.dumps(config_values()))
    for _ in range(2):  # systemd restarts it
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            agent_service.serve(tmp_path)
    assert cluster.signals == CRASHED


@pytest.mark.usefixtures("_signal_handlers", "_instance", "shipper")
def test_crash_traceback_is_logged_before_the_signal(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []

    def take_signal(**_: str) -> None:
        events = cluster.clients.logs.filter_log_events(logGroupName=LOG_GROUP)["events"]
        words.extend(event["message"] for event in events)

    monkeypatch.setattr(cluster.clients.cloudformation, "signal_resource", take_signal)
    monkeypatch.setattr(Agent, "run_pass", crash)
    write_config(tmp_path, json.dumps(config_values()))
    with pytest.raises(ZeroDivisionError):
        agent_service.serve(tmp_path)
    [sentence] = [text for text in words if "agent crashed" in text]
    assert sentence.startswith("agent crashed: ZeroDivisionError\nTraceback")
    assert sentence.endswith("ZeroDivisionError: on purpose")


@pytest.mark.usefixtures("_signal_handlers", "_instance", "shipper")
def test_crash_of_an_optional_node_sends_no_failure(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "run_pass", crash)
    write_config(tmp_path, json.dumps(config_values() | {"fails_deploy": False}))
    with pytest.raises(ZeroDivisionError):
        agent_service.serve(tmp_path)
    assert cluster.signals == []


@pytest.mark.usefixtures("_signal_handlers", "_instance", "shipper")
def test_crash_that_cannot_be_reported_is_still_a_crash(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_answer() -> NoReturn:
        raise MetadataError("no answer")

    monkeypatch.setattr(agent_service, "read_identity", no_answer)
    monkeypatch.setattr(Agent, "run_pass", crash)
    write_config(tmp_path, json.dumps(config_values()))
    with pytest.raises(ZeroDivisionError):
        agent_service.serve(tmp_path)
    assert cluster.signals == []
    assert "cannot report the failure agent-crashed ZeroDivisionError: no answer" in caplog.text


@pytest.mark.usefixtures("_signal_handlers", "_instance", "shipper")
def test_crash_that_no_stack_waits_for_is_reported_once(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(**signal: str) -> None:
        asked.append(signal["UniqueId"])
        message = "Stack digits is in CREATE_COMPLETE state and cannot be signaled"
        raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "SignalResource")

    monkeypatch.setattr(cluster.clients.cloudformation, "signal_resource", refuse)
    monkeypatch.setattr(Agent, "run_pass", crash)
    write_config(tmp_path, json.dumps(config_values()))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            agent_service.serve(tmp_path)
    assert asked == ["i-1 agent-crashed ZeroDivisionError"]
    # Another machine would crash in the same way.
    assert cluster.marked_unhealthy == []
