from tests.local.aws.harness import Aws, Stacks
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
    stacks.create(cluster(Group=group(1)))
    name = stacks.physical_id("Group")
    refused = cluster(Group=group(2))
    refused["Resources"]["Template"] = launch_template(KeyName="nobodys")
    stacks.update(refused)
    answer = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=name)
    (failed,) = [found for found in answer["Activities"] if found["StatusCode"] == "Failed"]
    assert failed["StatusMessage"].startswith("The key pair 'nobodys' does not exist")
