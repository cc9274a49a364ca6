"""Start a control plane, and use it through boto3 clients like its users."""

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from local.control_plane.limits.limit_files import Capacity, write_capacities, write_quotas
from local.run.processes import die_with_parent
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[3]
REGION = "us-east-1"
START_LIMIT_S = 180


@dataclass(frozen=True, kw_only=True, slots=True)
class Aws:
    """The server's address, and clients for it."""

    url: str
    request_log: Path
    capacities: Path = Path("/nonexistent")
    """File with the limited capacity of zones."""
    quotas: Path = Path("/nonexistent")
    """File with the quotas."""

    def client(self, service: str, **credentials: str) -> Any:
        return _client(service, self.url, *sorted(credentials.items()))


@functools.cache
def _client(service: str, url: str, *credentials: tuple[str, str]) -> Any:
    """Return a cached client, because botocore takes a tenth of a second to make one."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"} | dict(credentials)
    session: Any = boto3.Session()
    return session.client(service, region_name=REGION, endpoint_url=url, **keys)


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    """Return a policy of these statements, whose effect is Allow unless given."""
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement} for statement in statements]}


ANYTHING = policy({"Action": "*", "Resource": "*"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A role with one policy, and its sessions."""

    aws: Aws
    name: str
    arn: str
    role_id: str

    @classmethod
    def make(cls, aws: Aws, name: str, document: dict[str, Any] = ANYTHING) -> "Role":
        trust = policy({"Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}})
        made = aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]
        role = cls(aws=aws, name=name, arn=made["Arn"], role_id=made["RoleId"])
        role.allow(document)
        return role

    def allow(self, document: dict[str, Any]) -> None:
        """Replace the role's policy."""
        self.aws.client("iam").put_role_policy(
            RoleName=self.name, PolicyName="own", PolicyDocument=json.dumps(document)
        )

    def session(self, name: str) -> dict[str, str]:
        """Return the credentials of a session of that name, as EC2 gives them to an instance."""
        return session_keys(self.aws, self.arn, name)

    def end(self) -> None:
        iam = self.aws.client("iam")
        iam.delete_role_policy(RoleName=self.name, PolicyName="own")
        iam.delete_role(RoleName=self.name)


@contextmanager
def user_with_policy(aws: Aws, name: str, document: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Create a user with one policy for the time of the block; yield the user's keys."""
    iam = aws.client("iam")
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=json.dumps(document))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    try:
        yield {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    finally:
        iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
        iam.delete_user_policy(UserName=name, PolicyName="own")
        iam.delete_user(UserName=name)


def session_keys(aws: Aws, role_arn: str, session: str) -> dict[str, str]:
    issued = aws.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=session)["Credentials"]
    return {
        "aws_access_key_id": issued["AccessKeyId"],
        "aws_secret_access_key": issued["SecretAccessKey"],
        "aws_session_token": issued["SessionToken"],
    }


def start_server(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a server on a free port; return it and the port. The server ends with this process, however that ends."""
    assert threading.current_thread() is threading.main_thread(), "the server would end with this thread"
    command = [sys.executable, "-m", "local.control_plane", "--host", "127.0.0.1", "--port", "0", *arguments]
    server = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    # readline has no timeout
    limit = threading.Timer(START_LIMIT_S, server.kill)
    limit.start()
    assert server.stdout
    line = server.stdout.readline()
    limit.cancel()
    assert line.startswith("listening on 127.0.0.1 port "), f"the server did not start: {line!r}"
    return server, int(line.split()[-1])


@contextmanager
def serving(log: Path, *arguments: str) -> Iterator[Aws]:
    """Run a server with this request log and these options, and check that it ends without a failure."""
    capacities = log.with_name("capacity.json")
    quotas = log.with_name("quotas.json")
    server, port = start_server(
        "--request-log", str(log), "--capacities", str(capacities), "--quotas", str(quotas), *arguments
    )
    try:
        yield Aws(url=f"http://localhost:{port}", request_log=log, capacities=capacities, quotas=quotas)
    finally:
        server.terminate()
        assert server.wait(timeout=60) == 0
        assert server.stdout
        server.stdout.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stacks:
    """Creates, updates and describes stacks, and remembers their names for the cleanup."""

    aws: Aws
    names: list[str] = field(default_factory=list)

    @property
    def cloudformation(self) -> Any:
        return self.aws.client("cloudformation")

    def create(self, template: dict[str, Any], name: str = "stack", **arguments: Any) -> str:
        self.names.append(name)
        self.cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template), **arguments)
        return name

    def update(self, template: dict[str, Any], name: str = "stack", **arguments: Any) -> None:
        self.cloudformation.update_stack(StackName=name, TemplateBody=json.dumps(template), **arguments)

    def signal(self, resource: str, unique_id: str, status: str = "SUCCESS", name: str = "stack") -> None:
        self.cloudformation.signal_resource(
            StackName=name, LogicalResourceId=resource, UniqueId=unique_id, Status=status
        )

    def status(self, name: str = "stack") -> str:
        return str(self.cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])

    def outputs(self, name: str = "stack") -> dict[str, str]:
        described = self.cloudformation.describe_stacks(StackName=name)["Stacks"][0].get("Outputs", [])
        return {output["OutputKey"]: output["OutputValue"] for output in described}

    def physical_id(self, resource: str, name: str = "stack") -> str:
        answer = self.cloudformation.describe_stack_resource(StackName=name, LogicalResourceId=resource)
        return str(answer["StackResourceDetail"]["PhysicalResourceId"])

    def events(self, resource: str, name: str = "stack") -> list[tuple[str, str]]:
        """Return status and reason of a resource's events, oldest first."""
        events = self.cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        return [
            (event["ResourceStatus"], event.get("ResourceStatusReason", ""))
            for event in reversed(events)
            if event["LogicalResourceId"] == resource
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountLimits:
    """Limits how many instances fit in zones, by the zones' last letters, and sets the account's quotas."""

    file: Path
    quotas: Path = Path("/nonexistent")

    def set(self, *, spot: bool = False, instance_type: str = "c5.large", **counts: int) -> None:
        write_capacities(
            self.file,
            [
                Capacity(instance_type=instance_type, zone=f"{REGION}{letter}", count=count, spot=spot)
                for letter, count in counts.items()
            ],
        )

    def set_quotas(self, **limits: int) -> None:
        write_quotas(self.quotas, {name.replace("_", "-"): count for name, count in limits.items()})


def wait_for_server(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds; the server changes without requests only when one of its timers expires."""
    wait_until(condition, what, timeout_s=60, every_s=0.05)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """An Auto Scaling group of a stack."""

    aws: Aws
    name: str

    @property
    def autoscaling(self) -> Any:
        return self.aws.client("autoscaling")

    def described(self) -> dict[str, Any]:
        answer = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[self.name])
        return dict(answer["AutoScalingGroups"][0])

    def members(self) -> dict[str, str]:
        """Return the members' lifecycle states by instance ID."""
        return {i["InstanceId"]: i["LifecycleState"] for i in self.described()["Instances"]}

    def in_service(self) -> set[str]:
        return {name for name, state in self.members().items() if state == "InService"}

    def waiting(self) -> set[str]:
        return {name for name, state in self.members().items() if state == "Terminating:Wait"}

    def terminate(self, instance_id: str, *, decrement: bool = False) -> None:
        self.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance_id, ShouldDecrementDesiredCapacity=decrement
        )

    def complete(self, instance_id: str, hook: str = "drain", result: str = "CONTINUE") -> None:
        self.autoscaling.complete_lifecycle_action(
            AutoScalingGroupName=self.name,
            LifecycleHookName=hook,
            InstanceId=instance_id,
            LifecycleActionResult=result,
        )

    def activities(self) -> list[tuple[str, str]]:
        """Return status and description of the activities, newest first."""
        answer = self.autoscaling.describe_scaling_activities(AutoScalingGroupName=self.name)
        return [(activity["StatusCode"], activity["Description"]) for activity in answer["Activities"]]


def state(aws: Aws, instance_id: str) -> str:
    """Return the state of an instance in EC2."""
    reservation = aws.client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"][0]
    return str(reservation["Instances"][0]["State"]["Name"])
