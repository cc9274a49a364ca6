"""Test which members a shrinking group terminates."""

from typing import Any

import pytest

from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template


def members(aws: Aws, stacks: Stacks) -> set[str]:
    name = stacks.physical_id("Group")
    (described,) = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
        "AutoScalingGroups"
    ]
    return {member["InstanceId"] for member in described["Instances"]}


def template(size: int, version: int, *policies: str) -> dict[str, Any]:
    made = cluster(Group=group(size))
    made["Resources"]["Template"] = launch_template(UserData={"Fn::Base64": f"version {version}"})
    if policies:
        made["Resources"]["Group"]["Properties"]["TerminationPolicies"] = [*policies]
    return made


def grow(aws: Aws, stacks: Stacks, versions: list[int], *policies: str) -> list[str]:
    """Create a group with a member launched from each of these versions, oldest first."""
    launched: list[str] = []
    for size, version in enumerate(versions, start=1):
        change = stacks.update if launched else stacks.create
        change(template(size, version, *policies))
        launched.extend(members(aws, stacks) - {*launched})
    assert len(launched) == len(versions)
    return launched


@pytest.mark.parametrize(
    ("policies", "ended"),
    [
        (("NewestInstance",), [2, 1]),
        (("OldestInstance",), [0, 1]),
        (("OldestLaunchTemplate", "NewestInstance"), [1, 0]),
        (("OldestLaunchTemplate", "OldestInstance"), [0, 1]),
        (("Default",), [0, 1]),
        ((), [0, 1]),
    ],
)
def test_shrinking_group_ends_the_members_that_its_policies_name(
    aws: Aws, stacks: Stacks, policies: tuple[str, ...], ended: list[int]
) -> None:
    launched = grow(aws, stacks, [1, 1, 2], *policies)
    left = {*launched}
    for index in ended:
        left.remove(launched[index])
        stacks.update(template(len(left), 2, *policies))
        assert members(aws, stacks) == left


def test_changed_policy_holds_for_the_very_update(aws: Aws, stacks: Stacks) -> None:
    oldest, *_ = grow(aws, stacks, [1, 2, 3], "OldestInstance")
    stacks.update(template(1, 3, "NewestInstance"))
    assert members(aws, stacks) == {oldest}


def test_omitted_policy_returns_to_the_default(aws: Aws, stacks: Stacks) -> None:
    launched = grow(aws, stacks, [1, 2, 3], "NewestInstance")
    stacks.update(template(2, 3))
    assert members(aws, stacks) == {*launched[1:]}


def test_unknown_policy_rolls_the_stack_back(stacks: Stacks) -> None:
    stacks.create(template(1, 1, "AllocationStrategy"))
    assert stacks.status() == "ROLLBACK_COMPLETE"
    refused = ("CREATE_FAILED", "the local AWS does not know the termination policy AllocationStrategy")
    assert refused in stacks.events("Group")
