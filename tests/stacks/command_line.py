"""Run the CDK's real command line against the local control plane, without nodes: the tests send their signals."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.local.control_plane.harness import REGION, Aws, Stacks

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_PART_OF_A_CHECKOUT = shutil.ignore_patterns(
    ".git",
    "cdk.out",
    "cdk.context.json",
    "node_modules",
    "tests",
    "docs",
    "benchmarks",
    "__pycache__",
    ".*_cache",
    "left-by-a-test",
)
COMMAND_LIMIT_S = 180
CLUSTER = "deeplearning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cdk:
    """The command line as a user has it, in its own checkout, because it writes lookups there."""

    aws: Aws
    checkout: Path
    cluster: str = CLUSTER

    @classmethod
    def in_copy(cls, aws: Aws, directory: Path, cluster: str = CLUSTER) -> "Cdk":
        checkout = Path(shutil.copytree(REPOSITORY, directory / "checkout", ignore=NOT_PART_OF_A_CHECKOUT))
        return cls(aws=aws, checkout=checkout, cluster=cluster)

    @property
    def stacks(self) -> Stacks:
        return Stacks(aws=self.aws)

    @property
    def looked_up(self) -> Path:
        return self.checkout / "cdk.context.json"

    @property
    def _output(self) -> Path:
        return self.checkout.parent / "output"

    def run(self, command: str, **settings: str) -> tuple[int, str]:
        """Run a command; return the exit code and the output of both streams."""
        return self._end(self._start(command, settings))

    def create(self, command: str = "", **settings: str) -> None:
        """Deploy for the first time, and signal on the master's behalf that it is ready."""
        deploy = self._start(f"deploy --require-approval never {command}", settings)
        end = time.monotonic() + COMMAND_LIMIT_S
        while deploy.poll() is None:
            assert time.monotonic() < end, f"waited {COMMAND_LIMIT_S} s for the deploy"
            for group in self._groups_in_progress():
                self.stacks.signal(group, "i-1", name=self.cluster)
            time.sleep(0.5)
        status, output = self._end(deploy)
        assert status == 0, output

    def _end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        status = process.wait(timeout=COMMAND_LIMIT_S)
        return status, self._output.read_text()

    def _start(self, command: str, settings: dict[str, str]) -> subprocess.Popen[str]:
        settings = {"cluster_name": self.cluster, **settings}
        context = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._output.open("w") as output:
            return subprocess.Popen(
                ["cdk", *command.split(), *context],
                cwd=self.checkout,
                env=_environment(self.aws.url),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def _groups_in_progress(self) -> list[str]:
        cloudformation = self.stacks.cloudformation
        if self.cluster not in [stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]]:
            return []
        found = cloudformation.describe_stack_resources(StackName=self.cluster)["StackResources"]
        return [
            str(resource["LogicalResourceId"])
            for resource in found
            if resource["ResourceType"] == "AWS::AutoScaling::AutoScalingGroup"
            and resource["ResourceStatus"] == "CREATE_IN_PROGRESS"
        ]

    def describe(self) -> tuple[str, Any]:
        """Return the stack's status, the networks of the account and the number of the stack's events."""
        [stack] = self.stacks.cloudformation.describe_stacks(StackName=self.cluster)["Stacks"]
        vpcs = self.aws.client("ec2").describe_vpcs()["Vpcs"]
        events = self.stacks.cloudformation.describe_stack_events(StackName=self.cluster)["StackEvents"]
        return str(stack["StackStatus"]), (vpcs, len(events))


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
        # It takes two thirds of a synth, and test_validators tests it.
        "CDK_VALIDATION": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
