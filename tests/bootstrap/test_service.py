import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap import service
from bootstrap.agent import Agent
from bootstrap.aws import Clients
from bootstrap.contract import NODE_CONFIG
from bootstrap.errors import ConfigError
from bootstrap.imds import Identity
from bootstrap.logs import LogShipper
from bootstrap.node import place
from tests.bootstrap.conftest import Cluster, config_values


def write_config(root: Path, text: str) -> None:
    file = place(root, NODE_CONFIG)
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_bad_config_fails_the_deploy_at_once_and_once(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(_region: str) -> Clients:
        return cluster.clients

    monkeypatch.setattr(service, "connect", connect)
    monkeypatch.setattr(service, "read_identity", lambda: Identity(instance_id="i-1", address="10.0.0.1"))
    write_config(tmp_path, json.dumps(config_values() | {"version": 2}))
    for _ in range(2):
        with pytest.raises(ConfigError, match="version must be 1, got 2"):
            service.read_config(tmp_path)
    assert cluster.signals == [("WorkerGroup", "FAILURE", "i-1 bad-config")]


def test_fails_when_there_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/etc/deeplearning/node\.json must be written before"):
        service.read_config(tmp_path)


@pytest.fixture
def _signal_handlers() -> Iterator[None]:
    """The handlers of the process that runs the tests come back."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    old = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, old, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signal_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_stops_when_told_to_and_ships_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def step(_agent: Agent) -> float:
        logging.getLogger("bootstrap.test").info("last line")
        os.kill(os.getpid(), number)
        return 60.0

    shipper = LogShipper()
    shipped: list[str] = []
    monkeypatch.setattr(shipper, "ship", lambda: shipped.append("all"))
    monkeypatch.setattr(service, "set_up_logging", lambda _file: shipper)
    monkeypatch.setattr(Agent, "step", step)
    write_config(tmp_path, json.dumps(config_values()))
    with pytest.raises(SystemExit) as stopped:
        service.serve(tmp_path)
    assert stopped.value.code == 0
    assert shipped == ["all"]
