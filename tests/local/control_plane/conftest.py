"""Start a control plane on a free port, and delete each test's stacks."""

from collections.abc import Iterator

import pytest

from tests.local.control_plane.harness import AccountLimits, Aws, Role, Stacks, serving

MINUTE_S = 0.4
"""Length of a minute in the rates of schedules, which act every five minutes."""


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with serving(tmp_path_factory.mktemp("aws") / "requests.jsonl", "--schedule-minute", str(MINUTE_S)) as aws:
        yield aws


@pytest.fixture
def stacks(aws: Aws) -> Iterator[Stacks]:
    made = Stacks(aws=aws)
    yield made
    end_hooks(aws)
    for name in made.names:
        made.cloudformation.delete_stack(StackName=name)


@pytest.fixture(autouse=True)
def _no_instance_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves an instance: it would count in the quotas and capacities of the tests after it."""
    yield
    if "aws" in request.fixturenames:
        states = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        aws: Aws = request.getfixturevalue("aws")
        assert aws.client("ec2").describe_instances(Filters=states)["Reservations"] == []


@pytest.fixture
def limits(aws: Aws) -> Iterator[AccountLimits]:
    """Limit the capacity in zones and the quotas during a test."""
    yield AccountLimits(file=aws.capacities, quotas=aws.quotas)
    for file in (aws.capacities, aws.quotas):
        file.unlink(missing_ok=True)


@pytest.fixture
def role(aws: Aws, request: pytest.FixtureRequest) -> Iterator[Role]:
    """Create a role that may do anything, unless the test changes its policy."""
    made = Role.make(aws, f"of-{request.node.name}"[:64].replace("[", "-").rstrip("]"))
    yield made
    made.end()


def end_hooks(aws: Aws) -> None:
    """Delete all hooks, which releases the instances that wait for them."""
    autoscaling = aws.client("autoscaling")
    for group in autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
        name = group["AutoScalingGroupName"]
        for hook in autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]:
            autoscaling.delete_lifecycle_hook(AutoScalingGroupName=name, LifecycleHookName=hook["LifecycleHookName"])
