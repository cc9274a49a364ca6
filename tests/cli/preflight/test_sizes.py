"""Test preflight's report on the sizes, above all those of a paused cluster."""

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from bootstrap.aws.group_sizes import PAUSED, GroupSize
from bootstrap.contract import MASTER, WORKER
from cli.preflight.sizes import check_sizes
from stacks.settings.nodes import declared_sizes
from tests.cli.preflight.stubbed_account import NEW_STACK, Account

OLD = declared_sizes(worker_count=2, needed_workers=2)
BOTH_PAUSED = {MASTER: PAUSED, WORKER: PAUSED}


def deployed(account: Account, now: dict[Any, GroupSize]) -> None:
    stack = {"StackName": "demo", "CreationTime": "2026-01-01T00:00:00Z", "StackStatus": "UPDATE_COMPLETE"}
    account.answers("cloudformation", "describe_stacks", {"Stacks": [stack]}, {"StackName": "demo"})
    groups, resources = [], {}
    for kind in (MASTER, WORKER):
        request, declared = now[kind].request(f"demo-{kind}"), OLD[kind].request(f"demo-{kind}")
        plain = {"DefaultCooldown": 1, "AvailabilityZones": [], "HealthCheckType": "EC2"}
        groups.append({**request, **plain, "CreatedTime": datetime(2026, 1, 1, tzinfo=timezone.utc)})
        texts = {name: str(value) for name, value in declared.items()}
        resources[kind] = {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": texts}
    account.answers("autoscaling", "describe_auto_scaling_groups", {"AutoScalingGroups": groups})
    body = {"TemplateBody": json.dumps({"Resources": resources})}
    account.answers("cloudformation", "get_template", body)


@pytest.mark.parametrize(
    ("now", "settings", "level", "message"),
    [
        ({**OLD}, {}, "ok", "worker_count stays 2; the deploy starts and terminates no node"),
        ({**OLD}, {"worker_count": 4}, "ok", "worker_count 2 -> 4; CloudFormation will start 2 nodes"),
        ({**OLD}, {"worker_count": 1}, "warning", "worker_count 2 -> 1; CloudFormation will terminate the newest node"),
        (
            BOTH_PAUSED,
            {},
            "ok",
            "worker_count stays 2; the cluster is paused: the deploy starts and terminates no node",
        ),
        (
            BOTH_PAUSED,
            {"worker_count": 4},
            "warning",
            "worker_count 2 -> 4; the cluster is paused: CloudFormation will start 4 nodes; "
            "workers do nothing without a master: dlcluster resume starts it",
        ),
        (BOTH_PAUSED, {"min_workers": 1}, "problem", "the cluster is paused: Auto Scaling will refuse the sizes "),
    ],
)
def test_preflight_says_what_a_deploy_does_to_the_nodes(
    account: Account, now: dict[Any, GroupSize], settings: dict[str, Any], level: str, message: str
) -> None:
    deployed(account, now)
    account.settings |= {"worker_count": 2, **settings}
    found = account.finds(check_sizes)
    assert (found.level, found.sentence[: len(message)]) == (level, message)


def test_deploy_that_forgets_a_larger_worker_count_is_told_where_to_keep_it(account: Account) -> None:
    deployed(account, {**OLD})
    account.settings["worker_count"] = 1
    assert account.finds(check_sizes).fix == 'to keep them, put "worker_count": 2 into cdk.json'


def test_cluster_that_is_not_deployed_gets_no_finding_on_sizes(account: Account) -> None:
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    assert account.check(check_sizes) == []
