from tests.local.aws.harness import Aws, Group, Stacks
from tests.local.aws.templates import cluster, group, launch_template


def activities(aws: Aws, group_name: str) -> list[tuple[str, str]]:
    answer = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group_name)
    return [(found["StatusCode"], found["Description"]) for found in answer["Activities"]]


def test_launches_and_terminations_are_recorded_newest_first(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    name = stacks.physical_id("Group")
    answer = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    first = answer["AutoScalingGroups"][0]["Instances"][0]["InstanceId"]
    assert activities(aws, name) == [("Successful", f"Launching a new EC2 instance: {first}")]
    aws.client("ec2").terminate_instances(InstanceIds=[first])
    launched, terminated, _ = activities(aws, name)
    assert terminated == ("Successful", f"Terminating EC2 instance: {first}")
    assert launched[1].startswith("Launching a new EC2 instance: i-")
    assert first not in launched[1]


def test_failed_launch_of_a_group_says_why(aws: Aws, stacks: Stacks) -> None:
    ec2 = aws.client("ec2")
    ec2.create_key_pair(KeyName="lost")
    stacks.create({"Resources": cluster(Group=group(1))["Resources"] | {"Template": launch_template(KeyName="lost")}})
    ec2.delete_key_pair(KeyName="lost")
    members = Group(aws=aws, name=stacks.physical_id("Group"))
    (first,) = members.in_service()
    ec2.terminate_instances(InstanceIds=[first])
    answer = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=members.name)
    (failed,) = [found for found in answer["Activities"] if found["StatusCode"] == "Failed"]
    assert failed["StatusMessage"] == "The key pair 'lost' does not exist. Launching EC2 instance failed."


def test_update_to_a_template_that_cannot_be_launched_is_refused(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    members = Group(aws=aws, name=stacks.physical_id("Group"))
    refused = cluster(Group=group(2))
    refused["Resources"]["Template"] = launch_template(InstanceType="c5.99999xlarge")
    stacks.update(refused)
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    (why,) = [reason for status, reason in stacks.events("Group") if status == "UPDATE_FAILED"]
    assert why == (
        "You must use a valid fully-formed launch template. Invalid value 'c5.99999xlarge' for InstanceType."
    )
    assert [status for status, _ in members.activities()] == ["Successful"]
    assert len(members.in_service()) == 1
