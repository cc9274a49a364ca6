"""Provide fixtures for the agent's tests, which run no programs and reach no AWS but moto."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from botocore.client import BaseClient
from botocore.model import OperationModel
from hypothesis import HealthCheck, settings
from moto import mock_aws
from moto.ec2.models import ec2_backends

from bootstrap.aws.clients import Clients, connect
from bootstrap.contract import TABLE_KEY
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import LOG_GROUP, REGION, TABLE


class UnexpectedSubprocessError(BaseException):
    """A test ran a program; not an Exception, so that no handler in the code under test can catch it."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "allow_subprocess: the test starts programs on purpose")
    # The same examples on every machine, and no time limit for one of them.
    settings.register_profile(
        "gate", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile("random", settings.get_profile("gate"), derandomize=False, max_examples=1000)
    settings.load_profile(os.environ.get("EXAMPLES", "gate"))


@pytest.fixture(autouse=True)
def _no_subprocess(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("allow_subprocess"):
        return

    def refuse(*arguments: object, **_: object) -> NoReturn:
        raise UnexpectedSubprocessError(f"unexpected program {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "system", refuse)


@pytest.fixture(scope="session")
def clients() -> Clients:
    """Return clients that reach only moto, created once because reading the services' models is slow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        with mock_aws():
            return connect(REGION)


@pytest.fixture(scope="module")
def _no_images_of_motos() -> Iterator[None]:
    """Save moto from creating hundreds of images for each test; tests elsewhere get them back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        yield
    # Some backends outlive moto's own reset, because others recreate them in the middle of it.
    for backend in ec2_backends.values():
        backend.reset()


@pytest.fixture
def cluster(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _no_images_of_motos: None
) -> Iterator[SimulatedCluster]:
    """Yield an empty cluster; the test adds the groups."""
    with mock_aws():
        clients.dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": TABLE_KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": TABLE_KEY, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        clients.logs.create_log_group(logGroupName=LOG_GROUP)
        image = clients.ec2.register_image(Name="node")["ImageId"]
        clients.ec2.create_launch_template(
            LaunchTemplateName="node", LaunchTemplateData={"ImageId": image, "InstanceType": "m5.large"}
        )
        subnet = clients.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        made = SimulatedCluster(tmp_path, clients, subnet)
        monkeypatch.setattr(clients.cloudformation, "signal_resource", made.record_signal)
        monkeypatch.setattr(clients.autoscaling, "complete_lifecycle_action", made.record_completion)
        monkeypatch.setattr(clients.autoscaling, "record_lifecycle_action_heartbeat", made.record_heartbeat)
        monkeypatch.setattr(clients.autoscaling, "set_instance_health", made.record_health)
        yield made


@pytest.fixture
def calls(cluster: SimulatedCluster) -> Iterator[Counter[str]]:
    """Count the calls of each AWS operation."""
    counter: Counter[str] = Counter()
    watched: list[BaseClient] = [
        cluster.clients.autoscaling,
        cluster.clients.dynamodb,
        cluster.clients.ec2,
    ]

    def count(model: OperationModel, **_: object) -> None:
        counter[model.name] += 1

    for client in watched:
        client.meta.events.register("before-call", count)
    yield counter
    for client in watched:
        client.meta.events.unregister("before-call", count)
