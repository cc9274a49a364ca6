"""Heal a group of one real node that keeps an Elastic IP address; test_healing.py runs this inside a local AWS.

The node takes over the address when it boots, reports twice a second to the user's machine what it sees of itself, and
completes its lifecycle hook when its group ends it.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from local.network.addresses import USER_ADDRESS
from local.node.spot_notices import announce_interruption
from tests.local.control_plane import templates
from tests.local.control_plane.harness import Aws, Group, Stacks, state
from tests.local.control_plane.templates import attribute, cluster, hook, launch_template, ssh_from
from tests.waiting import wait_until

PORT = 9999
TIMEOUT_S = 120.0
DRAIN_S = 4
NODE_ACTIONS = [
    "autoscaling:CompleteLifecycleAction",
    "autoscaling:DescribeAutoScalingInstances",
    "ec2:AssociateAddress",
]
NODE = """#!/bin/bash
export AWS_DEFAULT_REGION=us-east-1
meta() {
    token=$(curl -sfX PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)
    curl -s -o "$2" -w '%{http_code}' -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"
}
value() { [ "$(meta "$1" /tmp/value)" = 200 ] && cat /tmp/value || echo none; }
id=$(value instance-id)
aws ec2 associate-address --allow-reassociation --allocation-id ${ElasticIp.AllocationId} --instance-id "$id"
name=$(aws autoscaling describe-auto-scaling-instances --instance-ids "$id" \\
    --query 'AutoScalingInstances[0].AutoScalingGroupName' --output text)
(
    until [ "$(value autoscaling/target-lifecycle-state)" = Terminated ]; do sleep 0.5; done
    sleep DRAIN_S
    aws autoscaling complete-lifecycle-action --lifecycle-hook-name drain --auto-scaling-group-name "$name" \\
        --instance-id "$id" --lifecycle-action-result CONTINUE
) &
while sleep 0.5; do
    echo "$id $(value public-ipv4) $(meta spot/instance-action /dev/null) $(nvidia-smi -L | wc -l)" \\
        | nc -w 2 -N USER_ADDRESS PORT
done
"""


@dataclass(kw_only=True, slots=True)
class NodeReports:
    """Each node's last report, and the address from which it came."""

    by_id: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def listen(self) -> None:
        server = socket.create_server((USER_ADDRESS, PORT))
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def _serve(self, server: socket.socket) -> None:
        while True:
            connection, (address, _port) = server.accept()
            with connection, connection.makefile() as lines:
                for line in lines:
                    instance_id, *values = line.split()
                    self.by_id[instance_id] = (address, *values)


def template() -> dict[str, Any]:
    script = NODE.replace("DRAIN_S", str(DRAIN_S)).replace("USER_ADDRESS PORT", f"{USER_ADDRESS} {PORT}")
    user_data = {"Fn::Base64": {"Fn::Sub": script}}
    made = cluster(Group=templates.group(1, "Public", LifecycleHookSpecificationList=[hook(120)]))
    made["Outputs"] = {"Address": {"Value": attribute("PublicIp", "ElasticIp")}}
    resources: dict[str, Any] = made["Resources"]
    statements: list[dict[str, Any]] = resources["Policy"]["Properties"]["PolicyDocument"]["Statement"]
    statements.append({"Effect": "Allow", "Action": NODE_ACTIONS, "Resource": "*"})
    resources["ElasticIp"] = {"Type": "AWS::EC2::EIP", "DependsOn": "Attachment", "Properties": {"Domain": "vpc"}}
    resources["Template"] = launch_template(UserData=user_data, InstanceType="g6.12xlarge")
    # Like the CDK: nodes that are ending still need their permissions.
    resources["Template"]["DependsOn"] = "Policy"
    resources["Security"]["Properties"]["SecurityGroupIngress"] = [ssh_from(f"{USER_ADDRESS}/32")]
    return made


def wait_for_step(condition: Callable[[], object], what: str) -> None:
    """Poll until the condition holds, and print how long that took."""
    started = time.monotonic()
    wait_until(condition, what, timeout_s=TIMEOUT_S)
    print(f"{time.monotonic() - started:5.1f} s: {what}", flush=True)


def ssh_banner(address: str) -> str:
    with socket.create_connection((address, 22), timeout=60) as connection:
        return connection.recv(64).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class HealingGroup:
    """The group, and what its nodes report."""

    aws: Aws
    stacks: Stacks
    asg: Group
    address: str
    reports: NodeReports

    def has_address(self, instance_id: str, notice: str = "404") -> bool:
        """Return True if a node has reported the address, outside and in its metadata, this notice and four GPUs."""
        return self.reports.by_id.get(instance_id) == (self.address, self.address, notice, "4")

    def wait_for_address(self, instance_id: str, which: str) -> None:
        wait_for_step(lambda: self.has_address(instance_id), f"the {which} node to have the address and four GPUs")


def create_group(aws: Aws) -> HealingGroup:
    reports, stacks = NodeReports(), Stacks(aws=aws)
    reports.listen()
    stacks.create(template())
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    return HealingGroup(aws=aws, stacks=stacks, asg=asg, address=stacks.outputs()["Address"], reports=reports)


def announce_notice(group: HealingGroup, run_dir: Path, instance_id: str) -> None:
    announce_interruption(run_dir, instance_id, at=datetime(2100, 1, 2, tzinfo=timezone.utc))
    wait_for_step(lambda: group.has_address(instance_id, "200"), "the node to see a notice")


def heal_by_health_check(group: HealingGroup, first: str) -> str:
    """Replace an unhealthy node, which completes its hook first; return the second node."""
    asg = group.asg
    asg.autoscaling.set_instance_health(InstanceId=first, HealthStatus="Unhealthy")
    (second,) = asg.in_service()
    assert asg.waiting() == {first}
    assert state(group.aws, first) == "running"
    wait_for_step(lambda: not asg.waiting(), "the first node to complete its hook")
    assert state(group.aws, first) == "terminated"
    group.wait_for_address(second, "second")
    assert ssh_banner(group.address).startswith("SSH-2.0")
    return second


def heal_after_power_cut(group: HealingGroup, second: str) -> str:
    """Cut a node's power, and return the third node, which takes its place."""
    next(Path("/sys/fs/cgroup").rglob(f"{second}/cgroup.kill")).write_text("1")
    wait_for_step(lambda: second not in group.asg.members(), "the group to miss the node whose power was cut")
    (third,) = group.asg.in_service()
    group.wait_for_address(third, "third")
    return third


def delete_stack(group: HealingGroup, third: str) -> None:
    stacks = group.stacks
    stacks.cloudformation.delete_stack(StackName="stack")
    assert stacks.status() == "DELETE_IN_PROGRESS"
    wait_for_step(lambda: not stacks.cloudformation.describe_stacks()["Stacks"], "the stack to be deleted")
    assert state(group.aws, third) == "terminated"
    assert group.aws.client("ec2").describe_addresses()["Addresses"] == []


def main() -> None:
    group = create_group(Aws(url=os.environ["AWS_ENDPOINT_URL"], request_log=Path()))
    (first,) = group.asg.in_service()
    group.wait_for_address(first, "first")
    assert ssh_banner(group.address).startswith("SSH-2.0")
    announce_notice(group, Path(os.environ["LOCAL_AWS_DIR"]), first)
    second = heal_by_health_check(group, first)
    third = heal_after_power_cut(group, second)
    delete_stack(group, third)


if __name__ == "__main__":
    main()
