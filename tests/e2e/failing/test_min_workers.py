"""A cluster may start with fewer workers than requested; the others join when they can.

No other cluster may be up: `make e2e` runs this test in another local AWS than most.
"""

import subprocess
import time
from pathlib import Path

import boto3

from local.chaos.observer import Observer
from local.run.user import User, deploy_arguments
from tests.e2e.checkouts import DEPLOY_S, Edit, copy_checkout
from tests.e2e.conftest import STACK, group_instances, stack_outputs

OUTAGE_S = 60
"""Seconds from the start of the deploy during which no worker becomes a node."""
JOINED_S = 120.0


def test_deploy_succeeds_without_the_worker_whose_replacement_joins_by_itself(user: User, tmp_path: Path) -> None:
    until = int(time.time()) + OUTAGE_S
    fail_until = f"[[ {{signal_resource}} != *Worker* ]] || (($(date +%s) > {until}))\n"
    start = "step='write the node configuration'\n"
    checkout = copy_checkout(
        tmp_path,
        Edit(file="stacks/nodes/user_data.py", old=start, new=f"step='wait for better times'\n{fail_until}{start}"),
    )
    command = ["cdk", *deploy_arguments(nodes=2), "-c", "min_workers=0"]
    environment = dict(user.environment)
    try:
        subprocess.run(command, cwd=checkout, env=environment, stdin=subprocess.DEVNULL, check=True, timeout=DEPLOY_S)
        user.write_ssh_config()
        count = "echo $DEEPLEARNING_WORKERS_COUNT"
        deadline = time.monotonic() + OUTAGE_S + JOINED_S
        while user.ssh("deeplearning-master", count).strip() != "2":
            assert time.monotonic() < deadline, user.output("dlcluster", "why", "--cluster", STACK)
            time.sleep(1.0)
        instances = Observer.current(STACK, environment=environment).await_agreement(JOINED_S).instances
        # Failed instances may still be there: they cannot report that nobody need wait for them.
        workers = [i["InstanceId"] for i in group_instances(stack_outputs()["WorkerAutoScalingGroup"])]
        assert instances[2] in workers
        assert "deeplearning: 2 of 2 nodes, generation" in user.output("dlcluster", "status", "--cluster", STACK)
        assert count_unhealthy(stack_outputs()["WorkerAutoScalingGroup"]) >= 1
    finally:
        user.cdk("destroy", "--force")


def count_unhealthy(group: str) -> int:
    """Count the instances that the group terminated because they reported themselves unhealthy."""
    found = boto3.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    return sum("taken out of service in response to a user health-check" in activity["Cause"] for activity in found)
