"""Make a stack of two groups with the product's end, and wait for it."""

from datetime import datetime, timedelta, timezone
from typing import Any

import aws_cdk as cdk

from bootstrap.contract import NODE_TYPES, group_name
from stacks.cluster_role import RoleRules
from stacks.lifetime.expiry import Expiry
from tests.local.control_plane.harness import Aws, Group
from tests.local.control_plane.templates import cluster, group
from tests.waiting import wait_until

NAME = "ends"
GROUPS = tuple(group_name(NAME, node_type) for node_type in NODE_TYPES)


def template(*, after_s: float, deletes: bool = False) -> dict[str, Any]:
    """Return a template of two groups of one node each, and the product's end for them."""
    app = cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Ends")
    expires = datetime.now(timezone.utc) + timedelta(seconds=after_s)
    Expiry(stack, "Expiry", expires=expires, role_rules=RoleRules(cluster_name=NAME), deletes=deletes)
    resources: dict[str, Any] = app.synth().get_stack_by_name("Ends").template["Resources"]
    for resource in resources.values():
        if resource["Type"] == "AWS::Scheduler::Schedule":
            # A start that has passed acts immediately, so wait until the groups exist.
            resource["DependsOn"] = ["Master", "Worker"]
    master, worker = (group(1, AutoScalingGroupName=name) for name in GROUPS)
    made = cluster(Master=master, Worker=worker)
    return made | {"Resources": made["Resources"] | resources}


def wait_until_paused(aws: Aws) -> None:
    for name in GROUPS:
        group = Group(aws=aws, name=name)
        wait_until(lambda: not group.members(), "the schedule", timeout_s=60)  # noqa: B023
        size = group.described()
        assert (size["MinSize"], size["DesiredCapacity"], size["MaxSize"]) == (0, 0, 0)
