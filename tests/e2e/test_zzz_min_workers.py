"""A cluster that may start with fewer workers than asked: the others come when they can.

No cluster may be up besides: `make e2e` gives this test another local AWS than most.
"""

import subprocess
import time
from pathlib import Path

import boto3

from local.chaos.observer import Observer
from local.run.user import User, deploy_arguments
from tests.e2e.checkouts import DEPLOY_S, Edit, copy_checkout
from tests.e2e.conftest import STACK, group_instances, stack_outputs

TROUBLE_S = 40
"""From the start of the deploy: no worker can become a node before."""
JOINED_S = 120.0


def test_deploy_succeeds_without_the_worker_whose_replacement_joins_by_itself(user: User, tmp_path: Path) -> None:
    until = int(time.time()) + TROUBLE_S
    trouble = f"[[ {{signal_resource}} != *Worker* ]] || (($(date +%s) > {until}))\n"
    start = "step='write the node configuration'\n"
    checkout = copy_checkout(
        tmp_path,
        Edit(file="stacks/nodes/user_data.py", old=start, new=f"step='wait for better times'\n{trouble}{start}"),
    )
    command = ["cdk", *deploy_arguments(nodes=2), "-c", "min_workers=0"]
    environment = dict(user.environment)
    try:
        subprocess.run(command, cwd=checkout, env=environment, stdin=subprocess.DEVNULL, check=True, timeout=DEPLOY_S)
        user.write_ssh_config()
        count = "echo $DEEPLEARNING_WORKERS_COUNT"
        deadline = time.monotonic() + TROUBLE_S + JOINED_S
        while user.ssh("deeplearning-master", count).strip() != "2":
            assert time.monotonic() < deadline, user.output("dlcluster", "why", "--cluster", STACK)
            time.sleep(1.0)
        slots = Observer.here(STACK, environment=environment).await_agreement(JOINED_S).slots
        # Those that failed may still be there: they cannot say that nobody need wait for them.
        workers = [i["InstanceId"] for i in group_instances(stack_outputs()["WorkerAutoScalingGroup"])]
        assert slots[2] in workers
        assert "deeplearning: 2 of 2 nodes, generation" in user.output("dlcluster", "status", "--cluster", STACK)
        assert causes(stack_outputs()["WorkerAutoScalingGroup"]) >= 1
    finally:
        user.cdk("destroy", "--force")


def causes(group: str) -> int:
    """How many instances the group took away because they called themselves unhealthy."""
    found = boto3.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    return sum("taken out of service in response to a user health-check" in activity["Cause"] for activity in found)
