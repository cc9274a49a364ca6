"""Test injected faults as a node's unmodified clients see them, and which callers get none."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local.control_plane.api_faults import SERVICES, ApiFault, ApiFaults, write_faults
from local.control_plane.api_request import ApiRequest
from tests.local.control_plane.harness import REGION, Aws, Role, start_server

SIGNED = {"HTTP_AUTHORIZATION": f"AWS4-HMAC-SHA256 Credential=ASIAKEY/20261120/{REGION}/ec2/aws4_request, "}
NO_RETRIES = Config(retries={"total_max_attempts": 1})
CALLS: dict[str, Callable[[Any], object]] = {
    "ec2": lambda client: client.describe_instances(),
    "autoscaling": lambda client: client.describe_auto_scaling_groups(),
    "cloudformation": lambda client: client.describe_stacks(),
    "dynamodb": lambda client: client.list_tables(),
    "logs": lambda client: client.describe_log_groups(),
    "s3": lambda client: client.list_objects_v2(Bucket="bucket"),
    "ssm": lambda client: client.describe_parameters(),
    "fsx": lambda client: client.describe_file_systems(),
    "secretsmanager": lambda client: client.get_secret_value(SecretId="key"),
}


def test_list_of_services_matches_motos_extras_in_requirements() -> None:
    requirements = Path(__file__).parents[3].joinpath("requirements-dev.txt").read_text()
    found = re.search(r"^moto\[(.*)\]", requirements, re.MULTILINE)
    assert found
    # Our own stand-in for Session Manager's messages is not part of moto, and these two of moto need no packages.
    assert {*SERVICES, "server"} - {"ssmmessages", "fsx", "secretsmanager"} == set(found[1].split(","))


class Control:
    """Injects faults into a running server, and creates clients of two nodes and of a user."""

    def __init__(self, port: int, file: Path) -> None:
        self.file = file
        self._url = f"http://localhost:{port}"
        self._role = Role.make(Aws(url=self._url, request_log=file), "of-nodes")
        self._keys: dict[str, dict[str, str]] = {}

    def inject(self, *faults: ApiFault) -> None:
        write_faults(self.file, faults)

    def client(self, service: str, node: str | None = None) -> Any:
        session: Any = boto3.Session()
        keys = self._keys_of(node) if node else {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return session.client(service, region_name=REGION, endpoint_url=self._url, config=NO_RETRIES, **keys)

    def _keys_of(self, node: str) -> dict[str, str]:
        if node not in self._keys:
            self._keys[node] = self._role.session(node)
        return self._keys[node]

    def failures(self, service: str, node: str | None = None, *, times: int = 1) -> list[tuple[int, str]]:
        """Return status and code of the calls that failed."""
        client, found = self.client(service, node), []
        for _ in range(times):
            try:
                CALLS[service](client)
            except ClientError as error:
                found.append((error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]))
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    file = tmp_path_factory.mktemp("api-faults") / "api-faults.json"
    process, port = start_server("--api-faults", str(file))
    control = Control(port, file)
    control.client("s3").create_bucket(Bucket="bucket")
    control.client("secretsmanager").create_secret(Name="key", SecretString="secret")
    yield control
    process.terminate()
    process.wait(timeout=60)
    assert process.stdout
    process.stdout.close()


@pytest.fixture
def control(server: Control) -> Iterator[Control]:
    yield server
    server.file.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("service", "failure"),
    [
        ("ec2", (503, "RequestLimitExceeded")),
        ("autoscaling", (400, "Throttling")),
        ("cloudformation", (400, "Throttling")),
        ("dynamodb", (400, "ProvisionedThroughputExceededException")),
        ("logs", (400, "ThrottlingException")),
        ("ssm", (400, "ThrottlingException")),
        ("fsx", (400, "ThrottlingException")),
        ("secretsmanager", (400, "ThrottlingException")),
        ("s3", (503, "SlowDown")),
    ],
)
def test_each_service_throttles_in_its_own_words(control: Control, service: str, failure: tuple[int, str]) -> None:
    assert control.failures(service, "i-1") == []
    control.inject(ApiFault(kind="throttle"))
    assert control.failures(service, "i-1") == [failure]


@pytest.mark.parametrize(
    ("service", "failure"),
    [
        ("ec2", (500, "InternalError")),
        ("autoscaling", (500, "InternalFailure")),
        ("dynamodb", (500, "InternalServerError")),
        ("logs", (500, "ServiceUnavailableException")),
        ("fsx", (500, "InternalServerError")),
        ("secretsmanager", (500, "InternalServiceError")),
        ("s3", (500, "InternalError")),
    ],
)
def test_each_service_breaks_in_its_own_words(control: Control, service: str, failure: tuple[int, str]) -> None:
    control.inject(ApiFault(kind="error"))
    assert control.failures(service, "i-1") == [failure]


def test_faults_reach_only_nodes_and_the_service_that_was_named(control: Control) -> None:
    control.inject(ApiFault(kind="throttle", service="dynamodb", instance_id="i-1"))
    assert len(control.failures("dynamodb", "i-1")) == 1
    assert control.failures("ec2", "i-1") == []
    assert control.failures("dynamodb", "i-2") == []
    control.inject(ApiFault(kind="throttle"))
    assert len(control.failures("dynamodb", "i-2")) == 1
    assert control.failures("dynamodb") == []
    assert control.failures("dynamodb", "a-person") == []


def test_calls_succeed_after_the_injected_faults_are_removed(control: Control) -> None:
    control.inject(ApiFault(kind="throttle"))
    assert len(control.failures("ec2", "i-1")) == 1
    control.file.unlink()
    assert control.failures("ec2", "i-1") == []


def test_requested_fraction_of_the_calls_fails(control: Control) -> None:
    control.inject(ApiFault(kind="throttle", fraction=0.5, seed=3))
    assert 5 < len(control.failures("ec2", "i-1", times=40)) < 35


def answers(faults: ApiFaults, *, times: int = 30) -> list[bool]:
    return [faults.response(ApiRequest(SIGNED, b""), instance_id="i-1") is not None for _ in range(times)]


def test_seed_fails_the_same_calls_again(tmp_path: Path) -> None:
    write_faults(tmp_path / "one", [ApiFault(kind="throttle", fraction=0.4, seed=9)])
    write_faults(tmp_path / "two", [ApiFault(kind="throttle", fraction=0.4, seed=10)])
    first, again, other = (answers(ApiFaults(tmp_path / name)) for name in ("one", "one", "two"))
    assert first == again
    assert first != other


def test_unchanged_fault_continues_its_sequence(tmp_path: Path) -> None:
    fault, other = ApiFault(kind="throttle", fraction=0.4, seed=9), ApiFault(kind="error", service="s3")
    write_faults(tmp_path / "one", [fault])
    faults = ApiFaults(tmp_path / "one")
    whole = answers(ApiFaults(tmp_path / "one"), times=30)
    first = answers(faults, times=10)
    write_faults(tmp_path / "one", [other, fault])
    assert first + answers(faults, times=20) == whole


def test_file_of_injected_faults_is_read_by_others_too(tmp_path: Path) -> None:
    write_faults(tmp_path / "file", [ApiFault(kind="error", service="s3", fraction=0.25)])
    assert json.loads((tmp_path / "file").read_text()) == [
        {"kind": "error", "service": "s3", "instance_id": None, "fraction": 0.25, "seed": 0}
    ]
