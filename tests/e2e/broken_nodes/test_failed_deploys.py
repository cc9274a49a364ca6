"""Test that a deploy whose nodes cannot start fails in time with the reason, which ``dlcluster why`` repeats.

Each fault is planted in a copy of the project, which is then deployed as users deploy theirs. No other cluster may be
up: `make e2e` gives these tests their own local AWS.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from local.run.user import User, deploy_arguments
from tests.e2e.broken_nodes.failed_deploy import (
    DEPLOY_S,
    SHORT_BOOTSTRAP_TIMEOUT,
    SHORT_CREATION_TIMEOUT,
    assert_reason,
    deploy_broken,
    shorten,
    stack_id,
)
from tests.e2e.support.checkouts import Edit, copy_checkout
from tests.e2e.support.deployed_cluster import group_instances, stack_outputs


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the project, to be broken."""
    return copy_checkout(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def _cleared_away(user: User) -> Iterator[None]:
    """Destroy the stack at the end; before that, each deploy removes what the previous one left."""
    yield
    user.cdk("destroy", "--force")


SILENT = "none: its agent never reached CloudWatch Logs"


def test_node_without_its_bundle_reports_it(user: User, checkout: Path) -> None:
    failure = deploy_broken(
        user,
        checkout,
        shorten("stacks/nodes/user_data.py", "FETCH_TIMEOUT_S", old="420", new="1"),
        Edit(
            file="stacks/nodes/bundle_asset.py",
            old="url=location.s3_object_url",
            new='url=f"{location.s3_object_url}.gone"',
        ),
    )
    assert_reason(failure, "user data: fetch the node bundle")
    assert (failure.log, SILENT in failure.why) == ("", True)


@pytest.mark.soak
def test_agent_that_cannot_be_installed_is_reported(user: User, checkout: Path) -> None:
    (checkout / "bootstrap/__main__.py").write_text("raise SystemExit('broken on purpose')\n")
    failure = deploy_broken(user, checkout)
    assert_reason(failure, "user data: install the agent")
    assert (failure.log, SILENT in failure.why) == ("", True)


@pytest.mark.soak
def test_node_without_its_table_reports_it(user: User, checkout: Path) -> None:
    # Its role allows only the cluster's table, so a call on another table is refused whether or not that exists.
    failure = deploy_broken(
        user,
        checkout,
        SHORT_BOOTSTRAP_TIMEOUT,
        Edit(file="stacks/nodes/node_config.py", old="table=cluster.table.table_name", new='table="no-table"'),
    )
    assert_reason(failure, "PutItem-AccessDeniedException")
    assert "PutItem-AccessDeniedException: An error occurred" in failure.log
    assert "PutItem-AccessDeniedException: An error occurred" in failure.why


def test_agent_that_crashes_is_reported_with_its_traceback(user: User, checkout: Path) -> None:
    failure = deploy_broken(
        user,
        checkout,
        Edit(
            file="bootstrap/agent.py",
            old="membership = session.coordinator.reconcile(stored)",
            new="raise ZeroDivisionError('broken on purpose')",
        ),
    )
    assert_reason(failure, "agent-crashed ZeroDivisionError")
    for sentence in (failure.log, failure.why):
        assert "ZeroDivisionError: broken on purpose" in sentence
        assert "in _refresh_membership" in sentence


FULL_DISK = """
mount -t tmpfs -o size=4k tmpfs /etc/profile.d
head -c 4096 /dev/zero > /etc/profile.d/full
"""
"""Commands that mount a full disk of one page where the agent has a file to write."""


def test_node_with_a_full_disk_reports_it(user: User, checkout: Path) -> None:
    start = "step='install the agent'\n"
    failure = deploy_broken(
        user,
        checkout,
        SHORT_BOOTSTRAP_TIMEOUT,
        Edit(file="stacks/nodes/user_data.py", old=start, new=f"{FULL_DISK}\n{start}"),
    )
    assert_reason(failure, "disk-full")
    assert "disk-full: [Errno 28] No space left on device" in failure.log
    assert "disk-full: [Errno 28] No space left on device" in failure.why


FILL = """
fallocate --length $(($(df --output=avail --block-size=1 / | tail -1) - 4096)) /var/filling || true
head -c 1M /dev/zero >/var/more
"""
"""Commands of a setup that leave no room on the node's disk."""


@pytest.mark.parametrize(
    ("script", "reason", "line"),
    [
        pytest.param("echo no such package\nexit 1", "setup: no such package", "setup.sh: no such package", id="fails"),
        pytest.param(
            "echo begun\nsleep infinity",
            "setup: timed out",
            "setup.sh exceeded its deadline and was killed; its last line: 'begun'",
            marks=pytest.mark.soak,
            id="hangs",
        ),
        # The agent may meet the full disk before it learns of the setup's end.
        pytest.param(FILL, "setup: head: .*|disk-full", "No space left on device", marks=pytest.mark.soak, id="fills"),
    ],
)
def test_failed_setup_fails_the_deploy_with_its_last_line(
    user: User, checkout: Path, script: str, reason: str, line: str
) -> None:
    (checkout / "node-setup.sh").write_text(f"#!/bin/bash\nset -euo pipefail\n{script}\n")
    failure = deploy_broken(
        user,
        checkout,
        shorten("bootstrap/setup/run_once.py", "RETRY_S", old="30.0", new="1.0"),
        settings={"setup": "node-setup.sh", "setup_timeout": "1m"},
    )
    [signal] = failure.reasons
    assert re.fullmatch(f"Received FAILURE signal with UniqueId {failure.launched} ({reason})", signal), signal
    assert signal in failure.why
    assert line in failure.log
    assert line in failure.why


NEVER_ANSWERS = Edit(file="stacks/nodes/user_data.py", old="step='start' ", new="sleep infinity\n")
NO_PROFILE = """
        resource = launch_template.node.default_child
        assert isinstance(resource, cdk.CfnResource)
        resource.add_property_deletion_override("LaunchTemplateData.IamInstanceProfile")
"""
NO_CREDENTIALS = Edit(
    file="stacks/nodes/node_group.py",
    old="        for group in security_groups[1:]:\n",
    new=f"{NO_PROFILE}        for group in security_groups[1:]:\n",
)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(NEVER_ANSWERS, id="never answers"),
        pytest.param(NO_CREDENTIALS, id="no credentials", marks=pytest.mark.soak),
    ],
)
def test_silent_node_times_out_and_is_named(user: User, checkout: Path, fault: Edit) -> None:
    failure = deploy_broken(user, checkout, SHORT_CREATION_TIMEOUT, fault)
    sentence = "Failed to receive 1 resource signal(s) within the specified duration"
    assert failure.reasons == (sentence,)
    assert sentence in failure.why
    assert (failure.log, SILENT in failure.why) == ("", True)
    assert f"aws ec2 get-console-output --latest --output text --instance-id {failure.launched}" in failure.why


ONE_SIGNAL_MORE = Edit(
    file="stacks/nodes/node_group.py",
    old="autoscaling.Signals.wait_for_count(size.min_size, ",
    new="autoscaling.Signals.wait_for_count(size.min_size + (node_type == contract.WORKER), ",
)
"""Edit that makes the stack wait for two workers where there is one: for it and for its replacement."""


def test_worker_lost_during_the_deploy_is_replaced(user: User, checkout: Path) -> None:
    ONE_SIGNAL_MORE.make(checkout)
    command = ["cdk", *deploy_arguments(nodes=2)]
    deploy = subprocess.Popen(command, cwd=checkout, env=dict(user.environment), stdin=subprocess.DEVNULL)
    try:
        lost = _worker_that_signaled(time.monotonic() + DEPLOY_S)
        boto3.client("ec2").terminate_instances(InstanceIds=[lost])
        assert deploy.wait(DEPLOY_S) == 0
    finally:
        deploy.kill()
        deploy.wait()
    (worker,) = [i["InstanceId"] for i in group_instances(stack_outputs()["WorkerAutoScalingGroup"])]
    assert worker != lost
    user.write_ssh_config()
    assert user.ssh("deeplearning-worker2", "echo $DEEPLEARNING_INSTANCE_ID").strip() == worker


def _worker_that_signaled(deadline: float) -> str:
    cloudformation = boto3.client("cloudformation")
    while time.monotonic() < deadline:
        stack = stack_id()
        for event in cloudformation.describe_stack_events(StackName=stack)["StackEvents"] if stack else ():
            reason = event.get("ResourceStatusReason", "")
            if "Workers" in event["LogicalResourceId"] and reason.startswith("Received SUCCESS signal"):
                return reason.split()[-1]
        time.sleep(0.2)
    raise TimeoutError(f"waited {DEPLOY_S} s for a worker's signal")
