"""Test a cluster in a Capacity Block: nothing runs before its start, and its nodes end before EC2 terminates them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Annotations, Match

from cli.aws.deployed_template import DeployedTemplate
from stacks.lifetime import capacity_block
from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack
from tests.bootstrap.identities import public_key
from tests.stacks.pinned_block import ACCOUNT, BLOCK, FACTS, REGION, SETTINGS, pinned
from tests.stacks.template_parts import Template, logical_id, resources

REPOSITORY = Path(__file__).parents[3]
NEXT = "cr-0fedcba9876543210"
GROUPS = ("deeplearning-master", "deeplearning-worker")
Make = Callable[..., tuple[ClusterStack, Template]]


@pytest.fixture
def make(context: dict[str, Any], tmp_path: Path) -> Make:
    def run(facts: dict[str, Any] | None = None, **settings: Any) -> tuple[ClusterStack, Template]:
        used = {**SETTINGS, **settings}
        looked_up = pinned(used["capacity_reservation"], {**FACTS, **(facts or {})})
        made = cdk.App(
            context=context | looked_up,
            post_cli_context={"@aws-cdk/core:annotationsInValidationReport": False},
            outdir=str(tmp_path),
            builtin_cloud_formation_validation=False,
        )
        env = cdk.Environment(account=ACCOUNT, region=REGION)
        stack = ClusterStack(made, "ClusterStack", props=ClusterProps(**used), env=env)
        made.synth()
        return stack, dict(json.loads((tmp_path / "ClusterStack.template.json").read_text()))

    return run


def schedules(template: Template) -> Iterator[tuple[str, str | None, str | None, dict[str, Any]]]:
    for schedule in resources(template, "AWS::Scheduler::Schedule"):
        found = schedule["Properties"]
        request = json.loads(found["Target"]["Input"])
        yield found["ScheduleExpression"], found.get("StartDate"), found.get("EndDate"), request


def size(group: str, least: int, most: int) -> dict[str, Any]:
    return {"AutoScalingGroupName": group, "MinSize": least, "MaxSize": most, "DesiredCapacity": most}


def test_deploy_starts_no_node_and_the_schedules_start_and_end_all(make: Make) -> None:
    _, template = make(min_workers=1)
    for group in resources(template, "AWS::AutoScaling::AutoScalingGroup"):
        found = group["Properties"]
        assert [found[name] for name in ("MinSize", "DesiredCapacity", "MaxSize")] == ["0"] * 3
        # CloudFormation waits for no signal, because no node could send it.
        assert "CreationPolicy" not in group
    gone = "2999-01-15T10:50:00Z"  # EC2 terminates from 11:00 on
    assert [*schedules(template)] == [
        # AWS does not document whether it retries a call that another service has refused, so the start is repeated
        # twice.
        *(
            (f"cron({minute} 11 1 1 ? *)", None, gone, size(group, 1, most))
            for group, most in zip(GROUPS, (1, 2), strict=True)
            for minute in (30, 35, 45)
        ),
        *(("rate(5 minutes)", gone, None, size(group, 0, 0)) for group in GROUPS),
    ]
    times = f"2999-01-01T11:30:00Z {gone} 2999-01-15T11:30:00Z"
    assert template["Outputs"]["CapacityBlock"]["Value"] == f"{BLOCK} {times}"
    assert template["Outputs"]["PricePerHour"]["Value"].startswith("0.10 USD an hour")
    master = template["Resources"][logical_id(template, "AWS::AutoScaling::AutoScalingGroup", "Master")]
    assert {"Key": "deeplearning:block-pauses", "Value": gone, "PropagateAtLaunch": False} in master["Properties"][
        "Tags"
    ]


def test_fullest_cluster_has_as_many_tags_as_aws_allows_a_group(make: Make) -> None:
    # The keys take three tags, and a fourth contains their hash.
    keys = tuple(f"{public_key(number)} k{number}" for number in range(10))
    settings = {
        "expires": "2999-01-20T00:00:00Z",
        "idle_stop": "2h",
        "tags": {f"t{number}": "x" for number in range(40)},
    }
    _, template = make(ssh_keys=keys[:7], **settings)
    master = template["Resources"][logical_id(template, "AWS::AutoScaling::AutoScalingGroup", "Master")]
    assert len(master["Properties"]["Tags"]) == 50
    with pytest.raises(SettingsError, match="must take at most 44 tags of the master's group, got 45"):
        make(ssh_keys=keys, **settings)


def test_nodes_ask_for_the_blocks_market_and_for_no_placement_group(make: Make) -> None:
    _, template = make()
    for launch_template in resources(template, "AWS::EC2::LaunchTemplate"):
        data = launch_template["Properties"]["LaunchTemplateData"]
        assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
        assert data["CapacityReservationSpecification"] == {
            "CapacityReservationTarget": {"CapacityReservationId": BLOCK}
        }
        assert "Placement" not in data


def test_master_of_another_type_is_outside_of_the_block(make: Make) -> None:
    _, template = make(facts={"TotalInstanceCount": 2}, master_instance_type="m7i.xlarge")
    found = template["Resources"][logical_id(template, "AWS::EC2::LaunchTemplate", "Master")]
    data = found["Properties"]["LaunchTemplateData"]
    assert not {"InstanceMarketOptions", "CapacityReservationSpecification"} & data.keys()


def test_role_of_the_start_may_set_the_declared_sizes_and_nothing_else(make: Make) -> None:
    _, template = make(min_workers=1)
    policies = [p["Properties"] for p in resources(template, "AWS::IAM::Policy")]
    [policy] = [p for p in policies if "StartRole" in json.dumps(p["Roles"])]
    allowed = {}
    for statement in policy["PolicyDocument"]["Statement"]:
        assert statement["Action"] == "autoscaling:UpdateAutoScalingGroup"
        [group] = [name for name in GROUPS if name in json.dumps(statement["Resource"])]
        assert json.dumps(statement["Resource"]).count("*") == 1
        allowed[group] = statement["Condition"]
    limits = ("autoscaling:MinSize", "autoscaling:MaxSize")
    assert allowed == {
        GROUPS[0]: {"NumericEquals": dict.fromkeys(limits, "1")},
        GROUPS[1]: {"NumericEquals": dict(zip(limits, "12", strict=True))},
    }


def test_schedules_roles_have_names_that_fit_beside_the_longest_prefix(make: Make) -> None:
    # role_name_prefix is checked against the longest end of a role's name, flow-logs.
    _, template = make(role_name_prefix="team-")
    names = [resource["Properties"]["RoleName"] for resource in resources(template, "AWS::IAM::Role")]
    ends = {name.removeprefix(f"team-deeplearning-{REGION}-") for name in names}
    assert {"start", "pause"} <= ends
    assert max(map(len, ends)) <= len("flow-logs")


def test_another_time_of_synth_changes_nothing_and_another_block_changes_its_schedules(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = make()

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2999, 1, 7, tzinfo=tz)

    monkeypatch.setattr(capacity_block, "datetime", Later)
    assert make()[1] == first
    monkeypatch.undo()
    later = {"StartDate": "2999-02-01T11:30:00Z", "EndDate": "2999-02-02T11:30:00Z"}
    _, second = make(facts=later, capacity_reservation=NEXT)
    names = [{n for n, r in t["Resources"].items() if r["Type"] == "AWS::Scheduler::Schedule"} for t in (first, second)]
    assert names[0].isdisjoint(names[1])
    assert BLOCK not in json.dumps(second)


def test_ended_block_is_an_error_for_deploy_but_not_for_synth(make: Make) -> None:
    ends = datetime.now(timezone.utc) + timedelta(minutes=39)
    stack, _ = make(facts={"StartDate": "2020-01-01T11:30:00Z", "EndDate": f"{ends:%Y-%m-%dT%H:%M:%SZ}"})
    [found] = Annotations.from_stack(stack).find_error("*", Match.any_value())
    assert str(found.entry.data).startswith(f"Capacity Block {BLOCK} is over, its nodes were terminated at ")


def test_deploy_during_a_block_explains_how_nodes_start(make: Make) -> None:
    stack, _ = make(facts={"StartDate": "2020-01-01T11:30:00Z"})
    [found] = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp("has already started"))
    assert "has already started: if no node is running, run dlcluster resume after the deploy" in str(found.entry.data)


def test_resume_takes_the_sizes_of_any_of_the_starts(make: Make) -> None:
    _, template = make(min_workers=1)
    deployed = DeployedTemplate(stack_name="x", resources=template["Resources"])
    assert deployed.declared_sizes("deeplearning") == ClusterProps(**SETTINGS, min_workers=1).fleet_sizes


def test_nodes_never_start_after_the_scheduled_pause(make: Make) -> None:
    # This is a short block of the local AWS.
    _, template = make(facts={"EndDate": "2999-01-01T12:15:00Z"})
    assert {found for found, *_ in schedules(template)} == {"cron(30 11 1 1 ? *)", "rate(5 minutes)"}


def test_app_synthesizes_a_block_that_is_over_so_that_destroy_works(context: dict[str, Any], tmp_path: Path) -> None:
    # An error in the CDK's validation report would end the synth itself.
    facts = FACTS | {"StartDate": "2020-01-01T11:30:00Z", "EndDate": "2020-01-02T11:30:00Z"}
    variables = {
        "CDK_CONTEXT_JSON": json.dumps(context | pinned(BLOCK, facts) | {"cluster": SETTINGS}),
        "CDK_OUTDIR": str(tmp_path),
        "CDK_VALIDATION": "false",
        "CDK_DEFAULT_ACCOUNT": ACCOUNT,
        "CDK_DEFAULT_REGION": REGION,
    }
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    message = "".join(path.read_text() for path in tmp_path.glob("*.json"))
    assert message.count(f"Capacity Block {BLOCK} is over") == 1


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"InstanceType": "p5.48xlarge"}, "is a block of p5.48xlarge, and instance_type is g5.8xlarge"),
        (
            {"AvailabilityZone": "us-west-2a"},
            "is in us-west-2a, and the cluster in us-west-2b: set availability_zone=us-west-2a",
        ),
        ({"TotalInstanceCount": 2}, "has 2 instances for 3 nodes, the master among them: lower worker_count"),
        ({"ReservationType": "default"}, "is not a Capacity Block with a start and an end"),
        ({"EndDate": None}, "is not a Capacity Block with a start and an end"),
    ],
)
def test_block_that_does_not_fit_is_refused_with_the_reason(make: Make, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        make(facts=facts)
    assert str(raised.value) == f"capacity_reservation {BLOCK} {message}"


def test_look_up_without_credentials_asks_for_them() -> None:
    with pytest.raises(SettingsError, match="needs credentials, as the block's dates are looked up"):
        ClusterStack(cdk.App(), "ClusterStack", props=ClusterProps(**SETTINGS))
