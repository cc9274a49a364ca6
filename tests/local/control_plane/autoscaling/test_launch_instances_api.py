"""Test LaunchInstances: all or some members are launched immediately, in the zone that the call names."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.ec2.images import FAMILIES, image_id
from tests.local.control_plane.harness import REGION, AccountLimits, Aws, Group, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template, reference, second_subnet

NEW = {"LaunchTemplateName": "new"}


@pytest.fixture
def asg(aws: Aws, stacks: Stacks) -> Group:
    """Create an empty group that may grow to 8, over the zones a and b."""
    subnets = [reference("Private"), reference("Other")]
    own = group(0, MaxSize="8", VPCZoneIdentifier=subnets)
    stacks.create(cluster(Group=own, Other=second_subnet()))
    return Group(aws=aws, name=stacks.physical_id("Group"))


def launch(asg: Group, count: int, zone: str | None = "a", **kwargs: Any) -> Any:
    placed: dict[str, Any] = {"AutoScalingGroupName": asg.name, "RequestedCapacity": count}
    placed |= {"AvailabilityZones": [f"{REGION}{zone}"]} if zone else {}
    return asg.autoscaling.launch_instances(**placed | kwargs)


def test_members_are_launched_in_the_named_zone_and_the_group_grows_by_them(aws: Aws, asg: Group) -> None:
    answer = launch(asg, 3, "b", ClientToken="first")
    (launched,) = answer["Instances"]
    assert answer["Errors"] == []
    assert (launched["InstanceType"], launched["MarketType"]) == ("c5.large", "OnDemand")
    assert (launched["AvailabilityZone"], launched["AvailabilityZoneId"]) == (f"{REGION}b", "use1-az1")
    assert set(launched["InstanceIds"]) == asg.in_service()
    assert asg.described()["DesiredCapacity"] == 3
    filters = [{"Name": "client-token", "Values": ["first"]}]
    reservations = aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
    subnets = {instance["InstanceId"]: instance["SubnetId"] for one in reservations for instance in one["Instances"]}
    assert subnets == dict.fromkeys(launched["InstanceIds"], launched["SubnetId"])
    assert [status for status, _ in asg.activities()] == ["Successful"] * 3


def test_partial_launch_reports_other_zones_with_capacity(asg: Group, limits: AccountLimits) -> None:
    limits.set(a=2, b=9)
    answer = launch(asg, 3)
    (launched,), (error,) = answer["Instances"], answer["Errors"]
    assert set(launched["InstanceIds"]) == asg.in_service()
    assert len(asg.in_service()) == asg.described()["DesiredCapacity"] == 2
    assert (error["ErrorCode"], error["AvailabilityZone"]) == ("InsufficientInstanceCapacity", f"{REGION}a")
    assert error["ErrorMessage"].startswith(
        "We currently do not have sufficient c5.large capacity in the Availability Zone you requested (us-east-1a)."
    )
    assert f"or choosing {REGION}b, {REGION}c" in error["ErrorMessage"]


def test_zone_without_room_leaves_the_group_as_it_was(asg: Group, limits: AccountLimits) -> None:
    limits.set(a=0)
    assert launch(asg, 2)["Instances"] == []
    assert asg.described()["DesiredCapacity"] == 0
    assert asg.in_service() == set()


def test_retry_with_the_groups_configuration_raises_the_desired_capacity(asg: Group, limits: AccountLimits) -> None:
    limits.set(a=1, b=0)
    launch(asg, 3, RetryStrategy="retry-with-group-configuration")
    assert asg.described()["DesiredCapacity"] == 3
    assert len(asg.in_service()) == 1


def test_same_token_gets_the_same_answer_and_launches_nothing(asg: Group) -> None:
    first, again = (launch(asg, 2, ClientToken="once") for _ in range(2))
    assert first["Instances"] == again["Instances"]
    assert len(asg.in_service()) == 2
    with pytest.raises(ClientError) as refused:
        launch(asg, 3, ClientToken="once")
    assert refused.value.response["Error"]["Code"] == "IdempotentParameterMismatch"


@pytest.mark.parametrize(
    ("count", "named", "why"),
    [
        (9, {}, "above the max size 8"),
        (101, {}, "must be from 1 to 100 instances, got 101"),
        (1, {"zone": None}, "has several zones"),
        (1, {"zone": "c"}, "us-east-1c is not a subnet or an Availability Zone of"),
        (1, {"SubnetIds": ["subnet-0"]}, "subnet-0 in us-east-1a is not a subnet"),
        (1, {"AvailabilityZoneIds": ["use1-az6"]}, "cannot specify both"),
        (1, {"AvailabilityZones": ["us-east-1a", "us-east-1b"]}, "less than or equal to 1"),
        (1, {"RetryStrategy": "forever"}, "must be one of none, retry-with-group-configuration"),
        (1, {"AutoScalingGroupName": "unknown"}, "name not found"),
    ],
)
def test_refused_request_launches_nothing(asg: Group, count: int, named: dict[str, Any], why: str) -> None:
    with pytest.raises(ClientError, match=f"ValidationError.*{why}"):
        launch(asg, count, **named)
    assert (asg.in_service(), asg.described()["DesiredCapacity"]) == (set(), 0)


@pytest.mark.parametrize(
    ("launches", "why"),
    [
        ({"LaunchConfigurationName": "old"}, "which has a launch configuration"),
        (
            {
                "MixedInstancesPolicy": {
                    "LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateName": "new"}}
                }
            },
            "the local AWS launches no instances of a mixed instances policy",
        ),
    ],
)
def test_group_without_its_own_launch_template_is_refused(aws: Aws, launches: dict[str, Any], why: str) -> None:
    autoscaling, ec2 = aws.client("autoscaling"), aws.client("ec2")
    autoscaling.create_launch_configuration(
        LaunchConfigurationName="old", ImageId=image_id(FAMILIES[0]), InstanceType="c5.large"
    )
    ec2.create_launch_template(**NEW, LaunchTemplateData={"InstanceType": "c5.large"})
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="other", MinSize=0, MaxSize=1, AvailabilityZones=[f"{REGION}a"], **launches
    )
    asg = Group(aws=aws, name="other")
    with pytest.raises(ClientError, match=f"ValidationError.*{why}"):
        launch(asg, 1)
    assert asg.described()["Instances"] == []
    autoscaling.delete_auto_scaling_group(AutoScalingGroupName="other")
    autoscaling.delete_launch_configuration(LaunchConfigurationName="old")
    ec2.delete_launch_template(**NEW)


def test_group_with_a_warm_pool_is_not_supported(asg: Group) -> None:
    asg.autoscaling.put_warm_pool(AutoScalingGroupName=asg.name)
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        launch(asg, 1)


def test_group_in_one_zone_need_not_name_it_and_its_spot_members_come_from_the_spot_pool(
    aws: Aws, stacks: Stacks, limits: AccountLimits
) -> None:
    template = cluster(Group=group(0, MaxSize="8"))
    template["Resources"]["Template"] = launch_template(InstanceMarketOptions={"MarketType": "spot"})
    stacks.create(template)
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    limits.set(a=0)
    assert launch(asg, 1, None)["Instances"][0]["MarketType"] == "Spot"
    limits.set(a=1, spot=True)
    (error,) = launch(asg, 1, None)["Errors"]
    assert (error["MarketType"], error["ErrorCode"]) == ("Spot", "InsufficientInstanceCapacity")
    assert error["ErrorMessage"] == "There is no Spot capacity available that matches your request."
