"""Check that any settings give a cluster, or one line that explains what is wrong.

``make soak`` tries 10,000 contexts, ``make test`` 600.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from stacks.settings.props import SETTINGS, ClusterProps
from stacks.settings.purchase import PURCHASES
from stacks.settings.values import SettingsError
from stacks.stack import ClusterStack
from tests.stacks.pinned_block import ACCOUNT, with_block
from tests.stacks.settings.contexts import Context, garbage, nearly_valid, run, valid
from tests.stacks.validation_report import IGNORED

CONTEXTS = int(os.environ.get("CONTEXTS", "600"))
SYNTHESIZED = CONTEXTS // 50
LINTED = CONTEXTS // 250
STACKS_AN_APP = 50
NOT_FOR_LINT = {"z9.huge", "z9.4xlarge", "p5e.48xlarge"}
"""Types that do not exist in the region, which cfn-lint knows."""


def outcome(context: Context) -> ClusterProps | str:
    try:
        return ClusterProps.from_context(context)
    except SettingsError as error:
        return str(error)


def check(context: Context) -> None:
    result = outcome(context)
    if isinstance(result, ClusterProps):
        known = {
            "no-ssh",
            "open-ssh",
            "no-key",
            "unknown-type",
            "not-sold",
            "no-trainer",
            "not-listed",
            "efa-image",
            "spot-needs-all",
        }
        assert result.warnings().keys() <= known
        return
    assert 0 < len(result) < 500, result
    assert result.isprintable(), result


def check_valid(context: Context) -> None:
    result = outcome(context)
    assert isinstance(result, ClusterProps), result
    given = context["cluster"] | {name: value for name, value in context.items() if name != "cluster"}
    # One block is a list of one.
    taken = {name: ", ".join(value) if isinstance(value, tuple) else value for name, value in asdict(result).items()}
    assert {name: str(value) for name, value in taken.items() if name in given} == {
        name: str(value) for name, value in given.items()
    }


def test_every_valid_context_is_taken_as_it_was_given() -> None:
    purchases: set[str] = set()

    def check_and_keep(context: Context) -> None:
        check_valid(context)
        purchases.add(ClusterProps.from_context(context).purchase)

    run(valid(), CONTEXTS // 5, check_and_keep)
    assert purchases == {*PURCHASES}


def test_a_nearly_valid_context_is_valid_or_one_line() -> None:
    messages: list[str] = []

    def check_and_keep(context: Context) -> None:
        check(context)
        messages.append(str(outcome(context)))

    run(nearly_valid(), CONTEXTS // 2, check_and_keep)
    # Otherwise the contexts would be too valid, or too invalid.
    assert any(m.startswith("unknown setting") and "did you mean" in m for m in messages)
    assert any(m.startswith("ClusterProps(") for m in messages)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_checked(name: str) -> None:
    message = outcome({name: [{}]})
    assert isinstance(message, str)
    assert message.startswith(f"{name} must"), message


def test_garbage_is_valid_or_one_line() -> None:
    run(garbage(), CONTEXTS * 3 // 10, check)


def placed(props: ClusterProps, number: int) -> tuple[ClusterProps, cdk.Environment | None, dict[str, Any]]:
    """Give a block what its look-up needs: dates, and a region that has the zone of the settings."""
    if not props.is_block:
        return props, None, {}
    region = "us-west-2" if (props.availability_zone or "").startswith("us-west-2") else "us-east-1"
    fitting, pins = with_block(props, number, region)
    return fitting, cdk.Environment(account=ACCOUNT, region=region), pins


@pytest.fixture(scope="module")
def synthesized(context: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[Path, ClusterProps]:
    """Return templates of generated settings, many stacks per app, because an app takes a second for ten."""
    found: list[ClusterProps] = []
    run(valid(), SYNTHESIZED + 50, lambda given: found.append(ClusterProps.from_context(given)))
    blocks = [each for each in found if each.is_block][-SYNTHESIZED // 6 :]
    assert blocks
    props = [*blocks, *[each for each in found if not each.is_block][len(blocks) - SYNTHESIZED :]]
    templates: dict[Path, ClusterProps] = {}
    for start in range(0, SYNTHESIZED, STACKS_AN_APP):
        outdir = tmp_path_factory.mktemp("cdk.out")
        stacks = [*map(placed, props[start : start + STACKS_AN_APP], range(STACKS_AN_APP))]
        pins = {name: value for _, _, looked_up in stacks for name, value in looked_up.items()}
        # The CDK's own validator runs in test_validators; here, cfn-lint runs.
        app = cdk.App(context={**context, **pins}, outdir=str(outdir), builtin_cloud_formation_validation=False)
        for number, (one, env, _) in enumerate(stacks):
            ClusterStack(app, f"Stack{number}", props=one, env=env)
            templates[outdir / f"Stack{number}.template.json"] = one
        app.synth()
    return templates


def test_valid_settings_reach_the_template(synthesized: dict[Path, ClusterProps]) -> None:
    assert len(synthesized) == SYNTHESIZED
    for path, props in synthesized.items():
        resources = json.loads(path.read_text())["Resources"].values()
        groups = [r["Properties"] for r in resources if r["Type"] == "AWS::AutoScaling::AutoScalingGroup"]
        declared = [1, props.worker_count] if props.is_placed and not props.is_block else [0, 0]
        assert sorted(int(group["DesiredCapacity"]) for group in groups) == sorted(declared)
        assert [r["Properties"]["CidrBlock"] for r in resources if r["Type"] == "AWS::EC2::VPC"] == [props.vpc_cidr]
        templates = [r["Properties"]["LaunchTemplateData"] for r in resources if "LaunchTemplate" in r["Type"]]
        assert sorted(template["InstanceType"] for template in templates) == sorted(
            [props.master_type, props.instance_type]
        )
        for template in templates:
            assert template["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == props.root_volume_gib
            assert template.get("KeyName") == props.key_name


def test_cfn_lint_finds_nothing_in_any_of_them(synthesized: dict[Path, ClusterProps]) -> None:
    chosen = [str(path) for path, props in synthesized.items() if props.instance_type not in NOT_FOR_LINT][:LINTED]
    assert len(chosen) == LINTED
    cfn_lint = str(Path(sys.executable).with_name("cfn-lint"))
    command = [cfn_lint, "--ignore-checks", *IGNORED, "--regions", "us-east-1", "--", *chosen]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")
