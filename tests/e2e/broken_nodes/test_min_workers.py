"""Test that a cluster may start with fewer workers than requested; the others join when they can.

No other cluster may be up: `make e2e` runs this test in a different local AWS than most.
"""

import subprocess
from pathlib import Path

import boto3

from local.chaos.observer import ClusterObserver
from local.run.user import User, deploy_arguments
from tests.e2e.support.checkouts import DEPLOY_S, Edit, copy_checkout
from tests.e2e.support.deployed_cluster import STACK, group_instances, stack_outputs
from tests.waiting import wait_until

FAILED_S = 300.0
"""Longest time from the end of the deploy until a worker has been replaced at least once."""
JOINED_S = 240.0


def test_deploy_succeeds_without_the_worker_whose_replacement_joins_by_itself(user: User, tmp_path: Path) -> None:
    fail_without_sts = "[[ {signal_resource} != *Worker* ]] || aws sts get-caller-identity\n"
    start = "step='write the node configuration'\n"
    checkout = copy_checkout(
        tmp_path,
        Edit(
            file="stacks/nodes/user_data.py", old=start, new=f"step='wait for better times'\n{fail_without_sts}{start}"
        ),
    )
    command = ["cdk", *deploy_arguments(nodes=2), "-c", "min_workers=0"]
    environment = dict(user.environment)
    user.output("local-aws", "fault", "api-errors", "sts")
    try:
        subprocess.run(command, cwd=checkout, env=environment, stdin=subprocess.DEVNULL, check=True, timeout=DEPLOY_S)
        user.write_ssh_config()
        workers = stack_outputs()["WorkerAutoScalingGroup"]
        wait_until(lambda: count_unhealthy(workers) >= 1, "a worker's replacement", timeout_s=FAILED_S, every_s=1.0)
        user.output("local-aws", "fault", "undo-all")
        wait_until(
            lambda: user.ssh("deeplearning-master", "echo $DEEPLEARNING_WORKERS_COUNT").strip() == "2",
            "the worker",
            timeout_s=JOINED_S,
            every_s=1.0,
        )
        instances = ClusterObserver.current(STACK, environment=environment).wait_for_agreement(JOINED_S).instances
        # Failed instances may still exist, because they cannot report that nobody need wait for them.
        assert instances[2] in [instance["InstanceId"] for instance in group_instances(workers)]
        assert "deeplearning: 2 of 2 nodes, generation" in user.output("dlcluster", "status", "--cluster", STACK)
    finally:
        user.output("local-aws", "fault", "undo-all")
        user.cdk("destroy", "--force")


def count_unhealthy(group: str) -> int:
    """Count the instances that the group terminated because they reported themselves unhealthy."""
    activities = boto3.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    cause = "taken out of service in response to a user health-check"
    return sum(cause in activity["Cause"] for activity in activities)
