"""Test which changes of a template update a resource in place, and which are refused."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template, resource, role, ssh_from


def members(aws: Aws) -> dict[str, str]:
    """Return the launch template version of each member of the only group, by instance ID."""
    answer = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {i["InstanceId"]: i["LaunchTemplate"]["Version"] for i in answer[0]["Instances"]}


def test_group_grows_and_shrinks_in_place(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(2)))
    name, before = stacks.physical_id("Group"), members(aws)
    stacks.update(cluster(Group=group(3)))
    assert stacks.status() == "UPDATE_COMPLETE"
    assert stacks.physical_id("Group") == name
    assert before.keys() < members(aws).keys()
    assert len(members(aws)) == 3
    stacks.update(cluster(Group=group(1)))
    assert len(members(aws)) == 1


def test_update_does_not_wait_for_signals(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1)))
    stacks.signal("Group", "i-1")
    stacks.update(cluster(Group=group(2, signals=2)))
    assert stacks.status() == "UPDATE_COMPLETE"
    with pytest.raises(ClientError, match="UPDATE_COMPLETE"):
        stacks.signal("Group", "i-2")


def test_changed_launch_template_is_a_new_version_for_new_members_only(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    template_id, first = stacks.physical_id("Template"), members(aws)
    changed = {"Template": launch_template(InstanceType="m5.large", UserData={"Fn::Base64": "new"})}
    stacks.update({"Resources": cluster(Group=group(2))["Resources"] | changed})
    assert stacks.physical_id("Template") == template_id
    assert first.items() < members(aws).items()
    assert sorted(members(aws).values()) == ["1", "2"]
    (added,) = members(aws).keys() - first.keys()
    reservation = aws.client("ec2").describe_instances(InstanceIds=[added])["Reservations"][0]
    assert reservation["Instances"][0]["InstanceType"] == "m5.large"


def test_changed_launch_template_alone_reaches_the_group(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    changed = {"Template": launch_template(InstanceType="m5.large")}
    stacks.update({"Resources": cluster(Group=group(1))["Resources"] | changed})
    answer = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"][0]
    assert answer["LaunchTemplate"]["Version"] == "2"
    assert [*members(aws).values()] == ["1"]


def test_rules_of_a_security_group_change_in_place(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    group_id, before = stacks.physical_id("Security"), members(aws)
    changed = cluster(Group=group(1))
    changed["Resources"]["Security"]["Properties"]["SecurityGroupIngress"] = [ssh_from("198.51.100.7/32")]
    stacks.update(changed)
    security_group = aws.client("ec2").describe_security_groups(GroupIds=[group_id])["SecurityGroups"][0]
    assert [r["CidrIp"] for p in security_group["IpPermissions"] for r in p["IpRanges"]] == ["198.51.100.7/32"]
    assert members(aws) == before


def test_tags_change_in_place(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    vpc = stacks.physical_id("Vpc")
    changed = cluster(Group=group(1))
    changed["Resources"]["Vpc"]["Properties"]["Tags"] = [{"Key": "team", "Value": "vision"}]
    tags = [{"Key": "team", "Value": "vision", "PropagateAtLaunch": True}]
    changed["Resources"]["Group"]["Properties"]["Tags"] = tags
    stacks.update(changed)
    assert stacks.physical_id("Vpc") == vpc
    tags = aws.client("ec2").describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"]
    own = {tag["Key"]: tag["Value"] for tag in tags if not tag["Key"].startswith("aws:")}
    assert own == {"team": "vision"}
    answer = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"][0]
    assert [tag["Key"] for tag in answer["Tags"]] == ["team"]


def test_tags_of_other_services_change_in_place(aws: Aws, stacks: Stacks) -> None:
    def template(team: str) -> dict[str, Any]:
        tags: dict[str, Any] = {"Tags": [{"Key": "team", "Value": team}]}
        key = {"AttributeName": "id"}
        table = resource(
            "DynamoDB::Table",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[key | {"AttributeType": "S"}],
            KeySchema=[key | {"KeyType": "HASH"}],
            **tags,
        )
        nodes = role()
        nodes["Role"]["Properties"] |= tags
        return {"Resources": nodes | {"Table": table, "Log": resource("Logs::LogGroup", **tags)}}

    stacks.create(template("vision"))
    names = {name: stacks.physical_id(name) for name in ("Table", "Log", "Role")}
    stacks.update(template("speech"))
    assert stacks.status() == "UPDATE_COMPLETE"
    assert names == {name: stacks.physical_id(name) for name in names}
    assert aws.client("logs").list_tags_log_group(logGroupName=names["Log"])["tags"] == {"team": "speech"}
    role_tags = aws.client("iam").list_role_tags(RoleName=names["Role"])["Tags"]
    arn = aws.client("dynamodb").describe_table(TableName=names["Table"])["Table"]["TableArn"]
    table_tags = aws.client("dynamodb").list_tags_of_resource(ResourceArn=arn)["Tags"]
    assert role_tags == table_tags == [{"Key": "team", "Value": "speech"}]


def test_update_that_the_server_cannot_do_is_refused_and_undone(stacks: Stacks) -> None:
    stacks.create(cluster())
    changed = cluster()
    changed["Resources"]["PrivateRoute"]["Properties"]["DestinationCidrBlock"] = "192.0.2.0/24"
    stacks.update(changed)
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    refused = ("UPDATE_FAILED", "the local AWS cannot update a resource of type AWS::EC2::Route")
    assert refused in stacks.events("PrivateRoute")


def test_another_name_of_a_group_is_refused_because_aws_replaces_the_group(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, AutoScalingGroupName="old")))
    stacks.update(cluster(Group=group(2, AutoScalingGroupName="new")))
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    refused = ("UPDATE_FAILED", "the local AWS cannot replace a group: AutoScalingGroupName old -> new")
    assert refused in stacks.events("Group")
    [described] = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (described["AutoScalingGroupName"], described["DesiredCapacity"]) == ("old", 1)


def test_resources_are_added_and_removed(aws: Aws, stacks: Stacks) -> None:
    logs = aws.client("logs")
    stacks.create({"Resources": {"Old": resource("Logs::LogGroup", LogGroupName="old")}})
    stacks.update({"Resources": {"New": resource("Logs::LogGroup", LogGroupName="new")}})
    assert [found["logGroupName"] for found in logs.describe_log_groups()["logGroups"]] == ["new"]


def test_previous_value_of_a_defaulted_parameter_is_kept(stacks: Stacks) -> None:
    template: dict[str, Any] = {
        "Parameters": {"Name": {"Type": "String", "Default": "first"}},
        "Resources": {"Log": resource("Logs::LogGroup", LogGroupName={"Ref": "Name"})},
    }
    stacks.create(template)
    template["Outputs"] = {"Name": {"Value": {"Ref": "Name"}}}
    stacks.update(template, Parameters=[{"ParameterKey": "Name", "UsePreviousValue": True}])
    assert stacks.outputs() == {"Name": "first"}


def test_refused_update_restores_the_previous_state(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    before = members(aws)
    refused = cluster(Group=group(2), Log=resource("Logs::LogGroup", LogGroupName="added"))
    refused["Resources"]["Template"] = launch_template(KeyName="nobodys")
    stacks.update(refused)
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    why = "You must use a valid fully-formed launch template. The key pair 'nobodys' does not exist"
    assert ("UPDATE_FAILED", why) in stacks.events("Group")
    assert members(aws).keys() == before.keys()
    assert aws.client("logs").describe_log_groups()["logGroups"] == []
    stacks.update(cluster(Group=group(2)))
    assert stacks.status() == "UPDATE_COMPLETE"


def test_group_of_a_refused_update_keeps_its_size(aws: Aws, stacks: Stacks) -> None:
    ec2 = aws.client("ec2")
    ec2.create_key_pair(KeyName="lost")

    def template(size: int) -> dict[str, Any]:
        resources = cluster(Group=group(size))["Resources"]
        return {"Resources": resources | {"Template": launch_template(KeyName="lost")}}

    stacks.create(template(1))
    ec2.delete_key_pair(KeyName="lost")
    stacks.update(template(2))
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    answer = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"][0]
    assert (answer["DesiredCapacity"], answer["MaxSize"], len(answer["Instances"])) == (1, 1, 1)


IGNORED = {"UpdatePolicy": {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}}
"""The update policy that the CDK writes into every group."""


def sized(
    least: int, desired: int, most: int, *, type_: str = "c5.large", policy: dict[str, Any] | None = None
) -> dict[str, Any]:
    made = group(desired)
    made["Properties"] |= {"MinSize": str(least), "MaxSize": str(most)}
    resources = cluster(Group=made | (IGNORED if policy is None else policy))["Resources"]
    return {"Resources": resources | {"Template": launch_template(InstanceType=type_)}}


def sizes(aws: Aws) -> tuple[int, int, int]:
    (described,) = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return described["MinSize"], described["DesiredCapacity"], described["MaxSize"]


def resize_by_hand(aws: Aws, stacks: Stacks, least: int, desired: int, most: int) -> None:
    aws.client("autoscaling").update_auto_scaling_group(
        AutoScalingGroupName=stacks.physical_id("Group"), MinSize=least, DesiredCapacity=desired, MaxSize=most
    )


def test_sizes_changed_by_hand_stay_when_the_template_has_the_same(aws: Aws, stacks: Stacks) -> None:
    stacks.create(sized(2, 2, 2))
    resize_by_hand(aws, stacks, 1, 3, 4)
    before = members(aws)
    stacks.update(sized(2, 2, 2, type_="m5.large"))
    assert stacks.status() == "UPDATE_COMPLETE"
    assert (sizes(aws), members(aws)) == ((1, 3, 4), before)


def test_only_the_sizes_that_the_template_changes_are_applied(aws: Aws, stacks: Stacks) -> None:
    stacks.create(sized(1, 2, 2))
    resize_by_hand(aws, stacks, 0, 3, 4)
    stacks.update(sized(1, 5, 5))
    assert sizes(aws) == (0, 5, 5)
    assert len(members(aws)) == 5


def test_without_the_policy_every_update_of_the_group_sets_its_sizes(aws: Aws, stacks: Stacks) -> None:
    stacks.create(sized(2, 2, 2, policy={}))
    resize_by_hand(aws, stacks, 1, 3, 4)
    stacks.update(sized(2, 2, 2, type_="m5.large", policy={}))
    assert sizes(aws) == (2, 2, 2)


def test_rollback_of_an_update_sets_the_sizes_of_the_old_template(aws: Aws, stacks: Stacks) -> None:
    stacks.create(sized(2, 2, 2))
    resize_by_hand(aws, stacks, 1, 3, 4)
    refused = sized(2, 2, 2)
    refused["Resources"]["Template"] = launch_template(KeyName="nobodys")
    stacks.update(refused)
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert sizes(aws) == (2, 2, 2)


def test_update_without_a_change_is_refused(stacks: Stacks) -> None:
    stacks.create(cluster())
    with pytest.raises(ClientError, match="No updates are to be performed"):
        stacks.update(cluster())
