"""Deploy a copy of the project with a fault, and collect what AWS and the nodes say about the failure."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from local.run.user import User, deploy_arguments
from tests.e2e.support.checkouts import Edit
from tests.e2e.support.deployed_cluster import STACK
from tests.e2e.support.leftovers import leftovers, stack_buckets

DEPLOY_S = 400
"""Below the product's own timeouts; edits shorten those that a fault must wait for."""
INSTANCE_ID = re.compile(r"\bi-[0-9a-f]{17}\b")


def shorten(file: str, constant: str, *, old: str, new: str) -> Edit:
    return Edit(file=file, old=f"{constant}: Final = {old}\n", new=f"{constant}: Final = {new}\n")


SHORT_BOOTSTRAP_TIMEOUT = shorten("stacks/nodes/node_config.py", "NODE_READY_TIMEOUT_S", old="1200", new="1")
SHORT_CREATION_TIMEOUT = shorten(
    "stacks/nodes/node_group.py", "CREATION_TIMEOUT", old="cdk.Duration.minutes(30)", new="cdk.Duration.seconds(10)"
)
SHORT_LEAVING_TIMEOUT = shorten("bootstrap/contract.py", "DRAIN_HOOK_HEARTBEAT_TIMEOUT_S", old="30", new="2")


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedDeploy:
    """A failed deploy, and what remains of it in AWS."""

    reasons: tuple[str, ...]
    """Reasons of the stack's failures, the first one first."""
    launched: str
    """Id of the only instance."""
    log: str
    """Lines of that instance in the stack's log group."""
    why: str
    """Output of ``dlcluster why``."""


def deploy_broken(user: User, checkout: Path, *edits: Edit, settings: Mapping[str, str] | None = None) -> FailedDeploy:
    """Deploy a single node with faults, which must fail and leave nothing but its log group and its bucket."""
    buckets, before = stack_buckets(), stack_id()
    for edit in (*edits, SHORT_LEAVING_TIMEOUT):
        edit.make(checkout)
    changed = [argument for name, value in (settings or {}).items() for argument in ("-c", f"{name}={value}")]
    deploy = subprocess.run(
        ["cdk", *deploy_arguments(nodes=1), *changed],
        cwd=checkout,
        env=dict(user.environment),
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=DEPLOY_S,
    )
    assert deploy.returncode == 1
    assert stack_id() not in (None, before)
    assert leftovers() == {}
    events = boto3.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"][::-1]
    assert {*stack_buckets()} == {*buckets, _physical_id(events, "AWS::S3::Bucket")}
    assert events[-1]["ResourceStatus"] == "ROLLBACK_COMPLETE"
    launched = _launched(events)
    return FailedDeploy(
        reasons=tuple(e["ResourceStatusReason"] for e in events if e["ResourceStatus"] == "CREATE_FAILED"),
        launched=launched,
        log=_log(_physical_id(events, "AWS::Logs::LogGroup"), launched),
        why=user.output("dlcluster", "why", "--cluster", STACK),
    )


def stack_id() -> str | None:
    """Return the id of the stack with that name, if any: it may be an earlier test's, rolled back."""
    found = boto3.client("cloudformation").describe_stacks()["Stacks"]
    return next((stack["StackId"] for stack in found if stack["StackName"] == STACK), None)


def _physical_id(events: list[Any], resource_type: str, part: str = "") -> str:
    (physical_id,) = {
        e["PhysicalResourceId"]
        for e in events
        if e["ResourceType"] == resource_type and part in e["LogicalResourceId"] and e["PhysicalResourceId"]
    }
    return str(physical_id)


def _launched(events: list[Any]) -> str:
    group = _physical_id(events, "AWS::AutoScaling::AutoScalingGroup", "Master")
    activities = boto3.client("autoscaling").describe_scaling_activities(
        AutoScalingGroupName=group, IncludeDeletedGroups=True
    )["Activities"]
    # An earlier stack's group had the same name.
    ours = [activity for activity in activities if activity["StartTime"] >= events[0]["Timestamp"]]
    (launched,) = {instance_id for activity in ours for instance_id in INSTANCE_ID.findall(activity["Description"])}
    return str(launched)


def _log(group: str, stream: str) -> str:
    """Return a stream's lines; empty if the node never reached it. The group must exist."""
    logs = boto3.client("logs")
    events = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=stream)["events"]
    return "\n".join(event["message"] for event in events)


def assert_reason(failure: FailedDeploy, reason: str) -> None:
    """Check that the stack and ``dlcluster why`` name the node and its reason."""
    sentence = f"Received FAILURE signal with UniqueId {failure.launched} {reason}"
    assert failure.reasons == (sentence,)
    assert sentence in failure.why
