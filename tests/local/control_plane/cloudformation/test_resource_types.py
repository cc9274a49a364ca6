"""Test the resource types that the local AWS adds to CloudFormation."""

from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import attribute, cluster, group, reference, resource


def test_lifecycle_hook_follows_its_template(aws: Aws, stacks: Stacks) -> None:
    def template(seconds: int | None) -> dict[str, object]:
        hook = resource(
            "AutoScaling::LifecycleHook",
            AutoScalingGroupName=reference("Group"),
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=seconds,
            DefaultResult="CONTINUE",
        )
        return cluster(Group=group(1), **({} if seconds is None else {"Hook": hook}))

    def hooks() -> list[tuple[int, str]]:
        name = stacks.physical_id("Group")
        answer = aws.client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=name)
        return [(hook["HeartbeatTimeout"], hook["DefaultResult"]) for hook in answer["LifecycleHooks"]]

    stacks.create(template(60))
    assert hooks() == [(60, "CONTINUE")]
    stacks.update(template(90))
    assert hooks() == [(90, "CONTINUE")]
    stacks.update(template(None))
    assert hooks() == []


def test_types_without_effect_are_accepted_changed_and_removed(stacks: Stacks) -> None:
    bucket = resource("S3::Bucket", BucketName="of-the-test")
    policy = resource("S3::BucketPolicy", Bucket=reference("Bucket"), PolicyDocument={})
    placement = resource("EC2::PlacementGroup", Strategy="cluster")
    outputs = {"Outputs": {"Name": {"Value": attribute("GroupName", "Placement")}}}
    stacks.create({"Resources": {"Bucket": bucket, "Policy": policy, "Placement": placement}} | outputs)
    assert stacks.outputs()["Name"] == stacks.physical_id("Placement")
    changed = resource("EC2::PlacementGroup", Strategy="spread")
    stacks.update({"Resources": {"Bucket": bucket, "Placement": changed}} | outputs)
    assert stacks.status() == "UPDATE_COMPLETE"
