"""Stand in for a cluster with three candidate zones, and for the CDK and agents."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import ClientError

from bootstrap.aws.group_sizes import GroupSize
from bootstrap.contract import IMMUTABLE_ZONE, MASTER, NO_ZONE, NODE_TYPES, WORKER, group_name
from cli.aws.clients import Clients
from cli.cdk.context import read_context, read_props
from cli.main import main
from stacks.settings.props import ClusterProps
from tests.cli.node_groups.nodeless_cluster import NAME, FakeProcess, NodelessCluster, template
from tests.local.control_plane.harness import REGION
from tests.local.control_plane.templates import reference, resource

ZONES = [f"{REGION}{letter}" for letter in "abc"]
GUARD = f"Cluster{IMMUTABLE_ZONE}CreatedWith"
SETTINGS = {
    "cluster_name": NAME,
    "worker_count": 2,
    "instance_type": "c5.large",
    "gpu_count": 0,
    "zones": ZONES,
    "ami": "ami-01234567",
}


DEAD_PID: Final = 2**30
"""Number that no process has: a run that was killed leaves it in its record."""


DEPLOY: Final = "deploy "


class KilledError(BaseException):
    """dlcluster ended at a point where nothing could be tidied up."""


@dataclass(kw_only=True)
class UpCluster(NodelessCluster):
    """The cluster, and what was done to it."""

    done: list[str] = field(default_factory=list)
    """The deploys and the calls that change something, in order."""
    kill_step: str = ""
    """Recorded change after which the call is killed, once; empty never kills it."""

    def up(self, *words: str) -> int:
        return main(["up", "--yes", *words])

    def kill_at(self, step: str) -> None:
        """Have the next call killed right after a change, such as ``launch worker us-east-1c``."""
        self.kill_step = step

    def note(self, step: str) -> None:
        self.done.append(step)
        if step == self.kill_step:
            self.kill_step = ""
            raise KilledError

    @property
    def zone(self) -> str:
        """Return the zone of the last deploy."""
        return next(step for step in reversed(self.done) if step.startswith(DEPLOY)).removeprefix(DEPLOY)

    def cdk(self, line: list[str], **_options: Any) -> FakeProcess:
        """Deploy like the CDK's command line: parameters that are not given keep their values."""
        self.lines.append(line)
        pairs, given = ([word for name, word in pairwise(line) if name == option] for option in ("-c", "--parameters"))
        props = read_props(read_context(Path.cwd(), pairs))
        made = zoned_template(props)
        if self.deployed:
            values = [word.split("=", 1) for word in given]
            changed: list[Any] = [{"ParameterKey": name, "ParameterValue": value} for name, value in values]
            parameters = changed or [{"ParameterKey": GUARD, "UsePreviousValue": True}]
            try:
                if made != self.deployed:
                    self.stacks.update(made, name=NAME, Parameters=parameters)
            except ClientError:
                return FakeProcess(1)
        else:
            self.stacks.create(made, name=NAME)
        self.deployed = made
        self.note(f"{DEPLOY}{props.availability_zone or props.zones[0]}")
        return FakeProcess()

    def zones(self) -> dict[str, list[str]]:
        """Return the zones of the running instances of each group."""
        return {kind: [i["AvailabilityZone"] for i in group["Instances"]] for kind, group in self.groups().items()}

    def running(self) -> int:
        """Return the number of instances that cost money, in any group or zone."""
        pages = self.aws.client("ec2").describe_instances(
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        )
        return sum(len(reservation["Instances"]) for reservation in pages["Reservations"])

    def subnets(self) -> dict[str, str]:
        """Return the subnets that each group names."""
        return {kind: group["VPCZoneIdentifier"] for kind, group in self.groups().items()}

    def cdk_json(self) -> dict[str, Any]:
        return dict(json.loads(Path("cdk.json").read_text())["context"]["cluster"])


def zoned_template(props: ClusterProps) -> dict[str, Any]:
    """Return the parts of the real template that the zone decides (tests/stacks/network/test_candidate_zones.py)."""
    made = template(props.initial_sizes)
    zone = props.availability_zone or props.zones[0]
    for number, candidate in enumerate(props.candidate_zones):
        made["Resources"][f"Subnet{candidate[-1]}"] = resource(
            "EC2::Subnet", VpcId=reference("Vpc"), AvailabilityZone=candidate, CidrBlock=f"10.0.{10 + number}.0/24"
        )
    for node_type in NODE_TYPES:
        group = made["Resources"][node_type.capitalize()]
        group["Properties"]["VPCZoneIdentifier"] = [reference(f"Subnet{zone[-1]}")]
    kept = props.availability_zone or NO_ZONE
    same = {"Assert": {"Fn::Equals": [reference(GUARD), kept]}, "AssertDescription": "availability_zone cannot change"}
    return made | {
        "Parameters": {GUARD: {"Type": "String", "Default": kept}},
        "Rules": {"ZoneUnchanged": {"Assertions": [same]}},
    }


def note_changes(clients: Clients, made: UpCluster) -> Callable[[], None]:
    """Record each call to Auto Scaling that changes something, after AWS has executed it."""
    events, requests = clients.autoscaling.meta.events, list[dict[str, Any]]()

    def keep_request(params: dict[str, Any], **_: Any) -> None:
        requests[:] = [params]

    def note(model: Any, **_: Any) -> None:
        if model.name.startswith(("Launch", "Update", "Create", "Delete")):
            made.note(f"{step_name(model.name, requests[0])} {made.zone}")

    events.register("provide-client-params.auto-scaling", keep_request)
    events.register("after-call.auto-scaling", note)

    def remove() -> None:
        events.unregister("provide-client-params.auto-scaling", keep_request)
        events.unregister("after-call.auto-scaling", note)

    return remove


def step_name(operation: str, request: dict[str, Any]) -> str:
    """Return what a call to Auto Scaling does to which group, such as ``launch worker``."""
    if operation in ("CreateOrUpdateTags", "DeleteTags"):
        return "record attempt" if operation == "CreateOrUpdateTags" else "forget attempt"
    group = request["AutoScalingGroupName"].removeprefix(f"{NAME}-")
    if operation == "LaunchInstances":
        return f"launch {group}"
    if request["MaxSize"] == 0:
        return f"pause {group}"
    return f"resume {group}" if request["DesiredCapacity"] else f"raise max size of {group}"


def all_nodes_in(zone: str) -> dict[str, list[str]]:
    return {MASTER: [zone], WORKER: [zone, zone]}


FLEET_SIZES = {
    MASTER: GroupSize(min_size=1, desired_capacity=1, max_size=1),
    WORKER: GroupSize(min_size=2, desired_capacity=2, max_size=2),
}
GROUPS = [group_name(NAME, node_type) for node_type in NODE_TYPES]
