"""Start a control plane on a free port, and delete each test's stacks."""

from collections.abc import Iterator

import pytest

from tests.local.aws.harness import Aws, Role, Stacks, start_server


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    log = tmp_path_factory.mktemp("aws") / "requests.jsonl"
    server, port = start_server("--request-log", str(log))
    yield Aws(url=f"http://localhost:{port}", request_log=log)
    server.terminate()
    assert server.wait(timeout=20) == 0
    assert server.stdout
    server.stdout.close()


@pytest.fixture
def stacks(aws: Aws) -> Iterator[Stacks]:
    made = Stacks(aws=aws)
    yield made
    end_hooks(aws)
    for name in made.names:
        made.cloudformation.delete_stack(StackName=name)


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
