"""A deploy that would replace the network is refused: the real command line against the local control plane."""

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local.aws.images import FAMILIES, image_id
from tests.local.aws.harness import REGION, Aws, Stacks, start_server

REPOSITORY = Path(__file__).resolve().parents[2]
CREATED = {
    "vpc_cidr": "10.1.0.0/16",
    "availability_zone": "us-east-1a",
    "worker_count": "0",
    # An id: the look-up of a parameter would be written into the checkout's cdk.context.json.
    "ami": image_id(FAMILIES[0]),
}
COMMAND_LIMIT_S = 180


@dataclass(frozen=True, kw_only=True, slots=True)
class Cdk:
    """The command line as a user has it; its output of both streams."""

    aws: Aws
    outdir: Path

    def start(self, verb: str, **settings: str) -> subprocess.Popen[str]:
        given = {"ami": CREATED["ami"], **settings}
        context = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        with self.output.open("w") as output:
            return subprocess.Popen(
                ["cdk", *verb.split(), "--output", str(self.outdir), *context],
                cwd=REPOSITORY,
                env=_environment(self.aws.url),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def run(self, verb: str, **settings: str) -> tuple[int, str]:
        status = self.start(verb, **settings).wait(timeout=COMMAND_LIMIT_S)
        return status, self.output.read_text()

    @property
    def output(self) -> Path:
        return self.outdir / "output"


def _environment(endpoint: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    return kept | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        # Two thirds of a synth, and what it finds is proven in test_validators.
        "CDK_VALIDATION": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    log = tmp_path_factory.mktemp("aws") / "requests.jsonl"
    server, port = start_server("--request-log", str(log))
    yield Aws(url=f"http://localhost:{port}", request_log=log)
    server.terminate()
    assert server.wait(timeout=20) == 0
    assert server.stdout
    server.stdout.close()


@pytest.fixture(scope="module")
def cdk(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Cdk:
    """A command line with a cluster already deployed."""
    command = Cdk(aws=aws, outdir=tmp_path_factory.mktemp("cdk.out"))
    status, output = command.run("bootstrap")
    assert status == 0, output
    deploy = command.start("deploy --require-approval never", **CREATED)
    _signal(Stacks(aws=aws), deploy)
    assert deploy.wait(timeout=COMMAND_LIMIT_S) == 0, command.output.read_text()
    return command


def _signal(stacks: Stacks, deploy: subprocess.Popen[str]) -> None:
    """Say in the master's stead that it is ready."""
    end = time.monotonic() + COMMAND_LIMIT_S
    while deploy.poll() is None:
        assert time.monotonic() < end, f"waited {COMMAND_LIMIT_S} s for the deploy"
        for group in _groups_in_progress(stacks):
            stacks.signal(group, "i-1", name="deeplearning")
        time.sleep(0.5)


def _groups_in_progress(stacks: Stacks) -> list[str]:
    cloudformation = stacks.cloudformation
    if "deeplearning" not in [stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]]:
        return []
    found = cloudformation.describe_stack_resources(StackName="deeplearning")["StackResources"]
    return [
        str(resource["LogicalResourceId"])
        for resource in found
        if resource["ResourceType"] == "AWS::AutoScaling::AutoScalingGroup"
        and resource["ResourceStatus"] == "CREATE_IN_PROGRESS"
    ]


def _describe(stacks: Stacks) -> tuple[str, Any]:
    [stack] = stacks.cloudformation.describe_stacks(StackName="deeplearning")["Stacks"]
    vpcs = stacks.aws.client("ec2").describe_vpcs()["Vpcs"]
    events = stacks.cloudformation.describe_stack_events(StackName="deeplearning")["StackEvents"]
    return str(stack["StackStatus"]), (vpcs, len(events))


@pytest.mark.parametrize(
    ("method", "changed", "sentence"),
    [
        ("", {"vpc_cidr": "10.2.0.0/16"}, "vpc_cidr of a running cluster cannot change, got 10.2.0.0/16"),
        (
            " --method=direct",
            {"availability_zone": "us-east-1b"},
            "availability_zone of a running cluster cannot change, got us-east-1b",
        ),
        ("", {"availability_zone": ""}, "availability_zone of a running cluster cannot change, got the region's first"),
    ],
)
def test_fails_when_a_deploy_would_replace_the_network(
    cdk: Cdk, method: str, changed: dict[str, str], sentence: str
) -> None:
    stacks = Stacks(aws=cdk.aws)
    before = _describe(stacks)
    status, output = cdk.run(f"deploy --require-approval never{method}", **CREATED | changed)
    assert status == 1, output
    assert sentence in output
    assert _describe(stacks) == before


def test_other_settings_change_in_place(cdk: Cdk) -> None:
    stacks = Stacks(aws=cdk.aws)
    _, (vpcs, _) = _describe(stacks)
    changed = {"instance_type": "m5.large", "ssh_location": "203.0.113.0/24", "root_volume_gib": "200"}
    status, output = cdk.run("deploy --require-approval never", **CREATED | changed)
    assert status == 0, output
    assert _describe(stacks)[0] == "UPDATE_COMPLETE"
    assert _describe(stacks)[1][0] == vpcs
