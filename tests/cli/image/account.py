"""Simulate the account, the cluster and the SSH connection that ``dlcluster bake`` uses."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from cli.aws.nodes import ClusterNode
from cli.ssh.master_connection import CommandResult
from tests.cli.moto_cluster import KEY

SHA256 = "0123456789abcdef" * 4
DONE = f"done:{SHA256[:12]}"
IMAGE = "ami-0123456789abcdef0"
JOB = {"id": "2026-1", "command": ["true"], "hosts": [], "submitted_at": "2026-01-01T00:00:00Z", "cwd": "/"}
BASE = "ami-00000000000000001"
WORKER = "i-00000000000000003"
STEPS = ("detach", "mark", "leave", "clean", "create", "wait")
"""Steps of a bake, in order, at which an account can fail."""
CALLER = "arn:aws:iam::123456789012:user/bob"


class Killed(BaseException):
    """Stand for SIGKILL: nothing runs after it."""


class RefusedError(Exception):
    """Stand for DynamoDB's ConditionalCheckFailedException."""


def aws_error(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "says AWS"}}, operation)


@dataclass
class Account:
    """A cluster of three with its SSH connection and clients; each raises at one step, if told to."""

    job_state: str = "SUCCEEDED"
    fails_at: str = ""
    is_killed: bool = False
    """True to stay dead once it fails, as a killed program does."""
    states: list[str] = field(default_factory=lambda: ["pending", "available"])
    image: str | None = None
    image_base: str = BASE
    image_architecture: str = "x86_64"
    refuses: str = ""
    """Call that the caller may not make."""
    group_tag_stays: int = 0
    """Looks at instances in which a detached one still has its group's tag; Auto Scaling removes it later."""
    record: dict[str, Any] | None = None
    """Record of the bake at work."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Requests of CreateImage."""
    launched: tuple[int, ...] = (1, 2, 3)
    """Minute of each node's launch, in the order of members."""
    members: tuple[ClusterNode, ...] = ()
    release: str = ""
    marked: list[str] = field(default_factory=list)
    detached: list[str] = field(default_factory=list)
    known_detached: list[str] = field(default_factory=list)
    """Instances with the tag that says so."""
    ended: list[str] = field(default_factory=list)
    did: list[str] = field(default_factory=list)
    is_dead: bool = False

    def step(self, name: str) -> None:
        if name == self.fails_at:
            self.is_dead = self.is_killed
            raise Killed
        self.did.append(name)

    def output(self, command: str, **_deadline: float) -> CommandResult:
        if command.startswith("launch"):
            return CommandResult(exit_code=0, stdout=json.dumps([{**JOB, "state": self.job_state}]).encode(), stderr="")
        assert f"bootstrap prepare-image --sha256 {SHA256}" in command
        self.step("clean")
        return CommandResult(exit_code=0, stdout=b"", stderr="")

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": CALLER}

    @property
    def exceptions(self) -> Any:
        return SimpleNamespace(ConditionalCheckFailedException=RefusedError)

    def get_item(self, **request: Any) -> dict[str, Any]:
        if self.is_dead:
            raise Killed
        assert (request["TableName"], request["Key"]) == ("table", {"id": {"S": "bake"}})
        return {"Item": self.record} if self.record else {}

    def put_item(self, **request: Any) -> None:
        read = request["ExpressionAttributeValues"][":read"]
        if self.record and self.record["revision"] != read:
            raise RefusedError
        self.record = request["Item"]

    def delete_item(self, **_request: Any) -> None:
        self.record = None

    def detach_instances(self, **request: Any) -> None:
        ids = request.pop("InstanceIds")
        assert request == {"AutoScalingGroupName": "demo-worker", "ShouldDecrementDesiredCapacity": False}
        assert set(ids) <= set(self.marked)
        if self.refuses == "detach":
            raise aws_error("ValidationError", "DetachInstances")
        self.step("detach")
        self.detached += ids

    def create_tags(self, **request: Any) -> None:
        ((key, value),) = [(tag["Key"], tag["Value"]) for tag in request["Tags"]]
        if key == "deeplearning:setup":
            assert value == SHA256
            self.marked = [*dict.fromkeys([*self.marked, *request["Resources"]])]
        else:
            assert (key, value) == ("deeplearning:detached-from", "demo-worker")
            assert set(request["Resources"]) <= set(self.detached)
            self.step("mark")
            self.known_detached += request["Resources"]

    def delete_tags(self, **request: Any) -> None:
        assert request["Tags"] == [{"Key": "deeplearning:setup"}]
        self.marked = [name for name in self.marked if name not in request["Resources"]]

    def create_image(self, **request: Any) -> dict[str, str]:
        if request.pop("DryRun", False):
            raise aws_error("UnauthorizedOperation" if self.refuses == "create" else "DryRunOperation", "CreateImage")
        self.asked.append(request)
        assert request["NoReboot"]
        assert [specification["ResourceType"] for specification in request["TagSpecifications"]] == [
            "image",
            "snapshot",
        ]
        for tag_specification in request["TagSpecifications"]:
            tags = {tag["Key"]: tag["Value"] for tag in tag_specification["Tags"]}
            assert (tags["deeplearning:cluster"], tags["deeplearning:setup"]) == ("demo", SHA256)
            assert tags["deeplearning:base-image"] == BASE
            assert tags["deeplearning:worker"] == request["InstanceId"]
        self.step("create")
        self.image = IMAGE
        return {"ImageId": IMAGE}

    def describe_images(self, **request: Any) -> dict[str, Any]:
        if self.image is None:
            return {"Images": []}
        if request["Filters"][0]["Name"] == "image-id":
            self.step("wait")
        state = self.states[0]
        if request["Filters"][0]["Name"] == "image-id":
            self.states = self.states[1:] or self.states
        image = {
            "ImageId": IMAGE,
            "State": state,
            "StateReason": {"Message": "no disk"},
            "Architecture": self.image_architecture,
            "Tags": [
                {"Key": "deeplearning:base-image", "Value": self.image_base},
                {"Key": "deeplearning:worker", "Value": "i-00000000000000003"},
            ],
        }
        return {"Images": [image]}

    def get_paginator(self, _name: str) -> "Account":
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        if self.is_dead:
            raise Killed
        if request["Filters"][0]["Name"] == "instance-id":
            yield {
                "Reservations": [
                    {"Instances": [self.instance(instance_id) for instance_id in request["Filters"][0]["Values"]]}
                ]
            }
            return
        group = {"Key": "aws:autoscaling:groupName", "Value": "demo-worker"}
        if self.detached and self.group_tag_stays:
            self.group_tag_stays -= 1
            tags = {name: [group] for name in self.marked}
        else:
            tags = {name: [] if name in self.detached else [group] for name in self.marked}
        left = {"Key": "deeplearning:detached-from", "Value": "demo-worker"}
        described = [
            {"InstanceId": name, "Tags": [*own, *([left] if name in self.known_detached else [])]}
            for name, own in tags.items()
        ]
        yield {"Reservations": [{"Instances": described}]}

    def instance(self, name: str) -> dict[str, Any]:
        index = int(name.removeprefix("i-"))
        return {
            "InstanceId": name,
            "InstanceType": "g6.xlarge",
            "Placement": {"AvailabilityZone": "eu-west-1a"},
            "PrivateIpAddress": f"10.0.0.{index}",
            "State": {"Name": "running"},
            "Tags": [{"Key": "deeplearning:cluster", "Value": "demo"}],
            "LaunchTime": datetime(2026, 1, 1, 0, self.launched[index - 1], tzinfo=timezone.utc),
            "ImageId": BASE,
            "Architecture": "x86_64",
            "RootDeviceName": "/dev/sda1",
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1"}, {"DeviceName": "/dev/sdf"}],
        }

    def terminate_instances(self, **request: Any) -> None:
        if request.pop("DryRun", False):
            raise aws_error("UnauthorizedOperation" if self.refuses == "end" else "DryRunOperation", "TerminateInst")
        self.did.append("end")
        for name in request["InstanceIds"]:
            self.marked.remove(name)
            self.ended.append(name)


def member(index: int, *, setup: str = DONE, release: str = "") -> ClusterNode:
    return ClusterNode(
        node_index=index,
        instance_id=f"i-{index:017}",
        address=f"10.0.0.{index}",
        node_type="master" if index == 1 else "worker",
        host_key=KEY,
        setup=setup,
        release=release,
    )


def ami_in_cdk_json() -> str | None:
    """Return the image that the cdk.json of this directory names."""
    found: str | None = json.loads(Path("cdk.json").read_text())["context"]["cluster"].get("ami")
    return found
