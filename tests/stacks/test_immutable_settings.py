"""Check which deploys are refused, by CloudFormation or by an error of the stack: the real cdk with the local AWS."""

from collections.abc import Iterator

import pytest

from local.control_plane.ec2.images import FAMILIES, image_id
from tests.local.control_plane.harness import Aws, serving
from tests.stacks.command_line import Cdk

CREATED = {
    "vpc_cidr": "10.1.0.0/16",
    "availability_zone": "us-east-1c",
    "worker_count": "0",
    "ami": image_id(FAMILIES[0]),
}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with serving(tmp_path_factory.mktemp("aws") / "requests.jsonl") as aws:
        yield aws


@pytest.fixture(scope="module")
def cdk(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Cdk:
    """Return a command line with a cluster already deployed."""
    command = Cdk.in_copy(aws, tmp_path_factory.mktemp("project"))
    status, output = command.run("bootstrap", **CREATED)
    assert status == 0, output
    command.create(**CREATED)
    return command


@pytest.mark.parametrize(
    ("method", "changed", "sentence"),
    [
        ("", {"vpc_cidr": "10.2.0.0/16"}, "vpc_cidr of a running cluster cannot change, got 10.2.0.0/16"),
        pytest.param(
            " --method=direct",
            {"availability_zone": "us-east-1b"},
            "availability_zone of a running cluster cannot change, got us-east-1b",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_deploy_of_a_changed_immutable_setting_changes_nothing(
    cdk: Cdk, method: str, changed: dict[str, str], sentence: str
) -> None:
    before = cdk.describe()
    status, output = cdk.run(f"deploy --require-approval never{method}", **CREATED | changed)
    assert status == 1, output
    assert sentence in output
    assert cdk.describe() == before


def test_other_settings_change_in_place(cdk: Cdk) -> None:
    _, (vpcs, _) = cdk.describe()
    changed = {"instance_type": "m5.large", "ssh_location": "203.0.113.0/24", "root_volume_gib": "200"}
    status, output = cdk.run("deploy --require-approval never", **CREATED | changed)
    assert status == 0, output
    assert cdk.describe()[0] == "UPDATE_COMPLETE"
    assert cdk.describe()[1][0] == vpcs


def test_past_expiry_stops_a_deploy_but_not_a_destroy(cdk: Cdk) -> None:
    # Last in this file, because it deletes the stack of the other tests.
    expired, before = CREATED | {"expires": "2020-01-01T00:00:00Z"}, cdk.describe()
    status, output = cdk.run("deploy --require-approval never", **expired)
    assert status == 1, output
    [error] = [line for line in output.splitlines() if line.startswith("ERROR ")]
    assert error.startswith("ERROR expires has passed, 2020-01-01T00:00:00Z: dlcluster extend 8h, or set a later one")
    assert cdk.describe() == before
    remove_draining_hooks(cdk)
    status, output = cdk.run("destroy --force", **expired)
    assert status == 0, output
    assert cdk.cluster not in [stack["StackName"] for stack in cdk.stacks.cloudformation.describe_stacks()["Stacks"]]


def remove_draining_hooks(cdk: Cdk) -> None:
    """Let nodes end at once, because no agent completes their hooks."""
    autoscaling = cdk.aws.client("autoscaling")
    for group in autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
        named = {"AutoScalingGroupName": group["AutoScalingGroupName"]}
        for hook in autoscaling.describe_lifecycle_hooks(**named)["LifecycleHooks"]:
            autoscaling.delete_lifecycle_hook(**named, LifecycleHookName=hook["LifecycleHookName"])
