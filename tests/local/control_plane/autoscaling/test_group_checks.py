"""Test groups whose settings exclude each other, which Auto Scaling refuses in these words."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import REGION, Aws, Group, Stacks
from tests.local.control_plane.templates import attribute, cluster, group, launch_template, reference

TARGET = {"CapacityReservationTarget": {"CapacityReservationIds": ["cr-0123456789abcdef0"]}}
RESERVED = "You can't specify CapacityReservationPreference as default or none and provide a CapacityReservationTarget"
MARKETS = [{"MarketType": "capacity-block"}, {"MarketType": "spot"}]
POOLED = (
    "You can't add a warm pool to an Auto Scaling group that has a mixed instances policy or a launch template or "
    "launch configuration that requests Spot Instances."
)


def template_with(market: dict[str, str] | None, **properties: Any) -> dict[str, Any]:
    template = cluster(Group=group(0, **properties))
    template["Resources"]["Template"] = launch_template(**({"InstanceMarketOptions": market} if market else {}))
    return template


def mixed() -> dict[str, Any]:
    """Return the properties of a group with a mixed instances policy in place of a launch template."""
    launched = {"LaunchTemplateId": reference("Template"), "Version": attribute("LatestVersionNumber", "Template")}
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": launched}}
    return {"MixedInstancesPolicy": policy, "LaunchTemplate": {}}


def refusal(stacks: Stacks, status: str = "CREATE_FAILED") -> str:
    (reason,) = [text for event_status, text in stacks.events("Group") if event_status == status]
    return reason


@pytest.mark.parametrize("preference", ["default", "none"])
def test_group_with_a_reservation_that_it_shall_not_use_is_refused(aws: Aws, stacks: Stacks, preference: str) -> None:
    specification = {"CapacityReservationPreference": preference}
    stacks.create(template_with(None, CapacityReservationSpecification=specification))
    assert stacks.status() == "CREATE_COMPLETE"
    stacks.update(template_with(None, CapacityReservationSpecification=specification | TARGET))
    assert refusal(stacks, "UPDATE_FAILED") == f"{RESERVED} in the same request"
    with pytest.raises(ClientError, match=f"ValidationError.*{RESERVED}"):
        aws.client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName="other",
            MinSize=0,
            MaxSize=1,
            AvailabilityZones=[f"{REGION}a"],
            CapacityReservationSpecification=specification | TARGET,
        )


def test_groups_own_reservation_is_not_ignored(stacks: Stacks) -> None:
    specification = {"CapacityReservationPreference": "capacity-reservations-only"} | TARGET
    stacks.create(template_with(None, CapacityReservationSpecification=specification))
    assert "launches instances into the reservation of a launch template, not of a group" in refusal(stacks)


@pytest.mark.parametrize("market", MARKETS)
def test_mixed_instances_policy_excludes_a_market_in_its_launch_template(
    stacks: Stacks, market: dict[str, str]
) -> None:
    stacks.create(template_with(market, **mixed()))
    assert refusal(stacks) == (
        "Incompatible launch template: You cannot use a launch template that is set to request Spot Instances "
        "(InstanceMarketOptions) when you configure an Auto Scaling group with a mixed instances policy. Add a "
        "different launch template to the group and try again."
    )


@pytest.mark.parametrize(("market", "properties"), [*((option, {}) for option in MARKETS), (None, mixed())])
def test_warm_pool_is_for_on_demand_groups_of_one_launch_template(
    aws: Aws, stacks: Stacks, market: dict[str, str] | None, properties: dict[str, Any]
) -> None:
    stacks.create(template_with(market, **properties))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    with pytest.raises(ClientError, match="ValidationError") as refused:
        asg.autoscaling.put_warm_pool(AutoScalingGroupName=asg.name)
    assert refused.value.response["Error"]["Message"] == POOLED
    assert "WarmPoolConfiguration" not in asg.described()
