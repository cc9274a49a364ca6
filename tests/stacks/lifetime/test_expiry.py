"""Test the end of a cluster in the template, and what stops a deploy."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Annotations, Match

from stacks.cluster_role import RoleRules
from stacks.lifetime.expiry import Expiry
from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.template_parts import Template, resources

Synthesize = Callable[..., Template]
REPOSITORY = Path(__file__).parents[3]
GROUP = "AWS::AutoScaling::AutoScalingGroup"
FUTURE = "2999-12-01T18:00:00+01:00"


@pytest.fixture(scope="module")
def expiring(synthesize: Synthesize) -> Template:
    return synthesize(expires=FUTURE)


def test_both_groups_go_to_zero_from_that_time_on(expiring: Template) -> None:
    found = [schedule["Properties"] for schedule in resources(expiring, "AWS::Scheduler::Schedule")]
    assert [(schedule["StartDate"], schedule["ScheduleExpression"]) for schedule in found] == [
        ("2999-12-01T17:00:00Z", "rate(5 minutes)")
    ] * 2
    assert [json.loads(schedule["Target"]["Input"]) for schedule in found] == [
        {"AutoScalingGroupName": f"deeplearning-{kind}", "MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
        for kind in ("master", "worker")
    ]
    assert expiring["Outputs"]["ClusterExpires"]["Value"] == "2999-12-01T17:00:00Z"


def test_schedules_role_may_set_zero_and_nothing_else(expiring: Template) -> None:
    [role] = {
        schedule["Properties"]["Target"]["RoleArn"]["Fn::GetAtt"][0]
        for schedule in resources(expiring, "AWS::Scheduler::Schedule")
    }
    [policy] = [
        p["Properties"] for p in resources(expiring, "AWS::IAM::Policy") if p["Properties"]["Roles"] == [{"Ref": role}]
    ]
    [statement] = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == "autoscaling:UpdateAutoScalingGroup"
    assert statement["Condition"] == {"NumericEquals": {"autoscaling:MinSize": "0", "autoscaling:MaxSize": "0"}}
    texts = [json.dumps(resource) for resource in statement["Resource"]]
    assert [text.count("*") for text in texts] == [1, 1]


def test_only_this_accounts_schedules_may_use_the_role(expiring: Template) -> None:
    # Without the conditions, another account's schedule could name the role (the confused deputy problem).
    [role] = {
        resource["Properties"]["Target"]["RoleArn"]["Fn::GetAtt"][0]
        for resource in resources(expiring, "AWS::Scheduler::Schedule")
    }
    [trust] = expiring["Resources"][role]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert (trust["Effect"], trust["Action"]) == ("Allow", "sts:AssumeRole")
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"].keys() == {"StringEquals", "ArnEquals"}
    assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    [(key, schedules)] = trust["Condition"]["ArnEquals"].items()
    assert key == "aws:SourceArn"
    assert schedules["Fn::Join"][1][-1] == ":schedule-group/default"


def test_stack_itself_is_deleted_a_quarter_of_an_hour_later(synthesize: Synthesize, expiring: Template) -> None:
    template = synthesize(expires=FUTURE, expiry_action="delete")
    [name] = schedule_names(template) - schedule_names(expiring)
    schedule = template["Resources"][name]["Properties"]
    assert (schedule["StartDate"], schedule["ScheduleExpression"]) == ("2999-12-01T17:15:00Z", "rate(5 minutes)")
    target = schedule["Target"]
    assert json.dumps(target["Arn"]).endswith(':scheduler:::aws-sdk:cloudformation:deleteStack"]]}')
    own = {"Ref": "AWS::StackId"}
    assert target["Input"] == {"Fn::Join": ["", ['{"StackName":"', own, '"}']]}
    assert template["Outputs"]["ClusterExpiryAction"]["Value"] == "delete"
    role = target["RoleArn"]["Fn::GetAtt"][0]
    policies = [resource["Properties"] for resource in resources(template, "AWS::IAM::Policy")]
    [policy] = [policy for policy in policies if policy["Roles"] == [{"Ref": role}]]
    delete, passes = policy["PolicyDocument"]["Statement"]
    assert (delete["Action"], delete["Resource"]) == ("cloudformation:DeleteStack", own)
    assert passes["Action"] == "iam:PassRole"
    assert ":role/cdk-hnb659fds-cfn-exec-role-${AWS::AccountId}-${AWS::Region}" in passes["Resource"]["Fn::Sub"]
    assert passes["Condition"] == {"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}}


def test_schedules_go_after_what_costs_money(synthesize: Synthesize) -> None:
    # A failed deletion is retried only while the schedule and its role exist.
    template = synthesize(expires=FUTURE, expiry_action="delete")
    parts = {name for name in template["Resources"] if name.startswith("ClusterExpiry")}
    kinds = sorted(template["Resources"][name]["Type"].rpartition(":")[2] for name in parts)
    assert kinds == ["Policy"] * 2 + ["Role"] * 2 + ["Schedule"] * 3
    for kind in ("AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::NatGateway"):
        assert all(parts <= set(part["DependsOn"]) for part in resources(template, kind))


@pytest.mark.parametrize("protected", [True, False])
def test_stack_that_no_schedule_could_delete_is_not_deployed(protected: bool) -> None:
    app = cdk.App(post_cli_context={"@aws-cdk/core:annotationsInValidationReport": False}, analytics_reporting=False)
    if protected:
        stack = cdk.Stack(app, "Ends", termination_protection=True)
    else:
        # As the caller, not as a role created by cdk bootstrap.
        stack = cdk.Stack(app, "Ends", synthesizer=cdk.CliCredentialsStackSynthesizer())
    expires, rules = datetime(2999, 1, 1, tzinfo=timezone.utc), RoleRules(cluster_name="ends")
    Expiry(stack, "Expiry", expires=expires, role_rules=rules, deletes=True)
    [found] = Annotations.from_stack(stack).find_error("*", Match.any_value())
    assert str(found.entry.data).startswith("expiry_action delete needs a stack of its own without termination")


def schedule_names(template: Template) -> set[str]:
    return {name for name, resource in template["Resources"].items() if resource["Type"] == "AWS::Scheduler::Schedule"}


def test_new_time_makes_new_schedules(synthesize: Synthesize, expiring: Template) -> None:
    later = synthesize(expires="2999-12-02T18:00:00+01:00")
    names = [
        {n for n, r in t["Resources"].items() if r["Type"] == "AWS::Scheduler::Schedule"} for t in (expiring, later)
    ]
    assert names[0].isdisjoint(names[1])


def set_clock(patch: pytest.MonkeyPatch, time: datetime) -> None:
    """Let every module of the stacks read this time, also one that should not read the clock at all.

    An injected clock would reach only the modules that are known to read it.
    """

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls.fromtimestamp(time.timestamp(), tz)

    readers = [m for name, m in sys.modules.items() if name.startswith("stacks.") and hasattr(m, "datetime")]
    assert readers
    for module in readers:
        patch.setattr(module, "datetime", Clock)


def test_two_synths_an_hour_apart_are_the_same(synthesize: Synthesize, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(timezone.utc)
    near = f"{now + timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"
    made = []
    for time in (now, now + timedelta(hours=1)):
        set_clock(monkeypatch, time)
        made.append(synthesize(expires=near, expiry_action="delete", idle_stop="30m"))
    assert made[0] == made[1]
    assert made[0]["Outputs"]["ClusterExpires"]["Value"] == near


def test_no_schedule_without_the_setting(template: Template) -> None:
    assert "ClusterExpires" not in template["Outputs"]
    assert not resources(template, "AWS::Scheduler::Schedule")


@pytest.mark.parametrize(("expires", "errors"), [("2020-01-01T00:00:00Z", 1), (FUTURE, 0)])
def test_passed_expiry_is_an_error_for_deploy_but_not_for_synth(
    expires: str, errors: int, context: dict[str, Any], tmp_path: Path
) -> None:
    # The CDK's command line refuses to deploy a stack with an error in its metadata; destroy ignores errors.
    settings = json.dumps(context | {"cluster": {"expires": expires}})
    environment = {**os.environ, "CDK_CONTEXT_JSON": settings, "CDK_OUTDIR": str(tmp_path), "CDK_VALIDATION": "false"}
    subprocess.run([sys.executable, "app.py"], cwd=REPOSITORY, env=environment, check=True, capture_output=True)
    message = "".join(path.read_text() for path in tmp_path.glob("*.json"))
    assert message.count('"aws:cdk:error"') == errors
    assert ("expires has passed, 2020-01-01T00:00:00Z: dlcluster extend 8h" in message) == bool(errors)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"expires": FUTURE, "expiry_action": "end"}, "expiry_action must be pause or delete, got 'end'"),
        ({"expiry_action": "delete"}, "expires must be set with expiry_action delete$"),
    ],
)
def test_action_that_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ClusterProps(**settings)


@pytest.mark.parametrize("expires", ["8h", "2026-12-01", "2026-12-01T18:00:00", "2026-13-01T18:00:00Z", "now"])
def test_time_without_a_zone_is_refused(expires: str) -> None:
    with pytest.raises(SettingsError, match="expires must be a time with its zone, like 2026-12-01T18:00:00"):
        ClusterProps(expires=expires)


def statements_of(template: Template, role: str) -> list[dict[str, Any]]:
    """Return what the policies of a role's construct allow."""
    found = [p["Properties"] for n, p in template["Resources"].items() if p["Type"] == "AWS::IAM::Policy" and role in n]
    return [statement for policy in found for statement in policy["PolicyDocument"]["Statement"]]


def group_tags(template: Template, name: str) -> dict[str, tuple[str, bool]]:
    [found] = [r for n, r in template["Resources"].items() if r["Type"] == GROUP and name in n]
    return {tag["Key"]: (tag["Value"], tag["PropagateAtLaunch"]) for tag in found["Properties"]["Tags"]}


def test_master_may_pause_an_idle_cluster_and_a_worker_may_not(synthesize: Synthesize, template: Template) -> None:
    idle = synthesize(idle_stop="30m", expires=FUTURE)
    action = "autoscaling:UpdateAutoScalingGroup"
    [allowed] = [statement for statement in statements_of(idle, "RolesMaster") if statement["Action"] == action]
    assert allowed["Condition"] == {"NumericEquals": {"autoscaling:MinSize": "0", "autoscaling:MaxSize": "0"}}
    assert [json.dumps(arn).count("deeplearning-") for arn in allowed["Resource"]] == [1, 1]
    assert action not in json.dumps(statements_of(idle, "RolesWorker"))
    assert action not in json.dumps(statements_of(template, "Roles"))


def test_new_time_reaches_running_nodes_in_a_tag_that_replaces_nothing(
    synthesize: Synthesize, template: Template
) -> None:
    # User data would reach only new nodes, and a tag on the instances would create a new launch template.
    both = synthesize(worker_count=2, idle_stop="2h", expires=FUTURE)
    message = {"deeplearning:expires": ("2999-12-01T17:00:00Z", False), "deeplearning:idle-stop": ("7200", False)}
    assert message.items() <= group_tags(both, "Master").items()
    assert not message.keys() & {*group_tags(both, "Workers"), *group_tags(template, "Master")}
    assert "idle-stop" not in json.dumps(resources(both, "AWS::EC2::LaunchTemplate"))


@pytest.mark.parametrize("idle_stop", ["9m", "30", "0m", "30s", "soon", ""])
def test_idle_time_below_ten_minutes_is_refused(idle_stop: str) -> None:
    with pytest.raises(SettingsError, match="idle_stop must be a time like 30m, 2h or 1d, at least 10m, got"):
        ClusterProps(idle_stop=idle_stop)


def test_idle_stop_that_a_dead_master_would_prevent_is_warned_about() -> None:
    assert "expires" in ClusterProps(idle_stop="10m").warnings()["idle-stop-alone"]
    assert "idle-stop-alone" not in ClusterProps(idle_stop="10m", expires=FUTURE).warnings()
