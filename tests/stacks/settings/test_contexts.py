"""Check that any settings give a cluster, or one line that explains what is wrong.

``make soak`` tries 10,000 contexts and synthesizes all settings that they give; ``make test`` tries 600 and synthesizes
a few of the valid ones.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.props import SETTINGS, ClusterProps
from stacks.settings.purchase import PURCHASES
from tests.stacks.settings.contexts import Context, garbage, nearly_valid, run, valid
from tests.stacks.settings.synthesis import synthesize_all
from tests.stacks.validation_report import IGNORED

CONTEXTS = int(os.environ.get("CONTEXTS", "600"))
SYNTHESIZES_ALL = "CONTEXTS" in os.environ
SAMPLE = CONTEXTS // 50
LINTED = CONTEXTS // 250
NOT_FOR_LINT = {"z9.huge", "z9.4xlarge", "p5e.48xlarge"}
"""Types that do not exist in the region, which cfn-lint knows."""


def outcome(context: Context) -> ClusterProps | str:
    try:
        return ClusterProps.from_context(context)
    except SettingsError as error:
        return str(error)


def check(context: Context) -> ClusterProps | str:
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
        return result
    assert 0 < len(result) < 500, result
    assert result.isprintable(), result
    return result


def check_valid(context: Context) -> ClusterProps:
    result = outcome(context)
    assert isinstance(result, ClusterProps), result
    given = context["cluster"] | {name: value for name, value in context.items() if name != "cluster"}
    # One block is a list of one.
    taken = {name: ", ".join(value) if isinstance(value, tuple) else value for name, value in asdict(result).items()}
    assert {name: str(value) for name, value in taken.items() if name in given} == {
        name: str(value) for name, value in given.items()
    }
    return result


@functools.cache
def valid_outcomes() -> list[ClusterProps]:
    """Check valid contexts; return their settings, once for all tests."""
    found: list[ClusterProps] = []
    run(valid(), CONTEXTS // 5, lambda context: found.append(check_valid(context)))
    return found


@functools.cache
def nearly_valid_outcomes() -> list[ClusterProps | str]:
    """Check nearly valid contexts; return their settings or the messages, once for all tests."""
    found: list[ClusterProps | str] = []
    run(nearly_valid(), CONTEXTS // 2, lambda context: found.append(check(context)))
    return found


@functools.cache
def garbage_outcomes() -> list[ClusterProps | str]:
    """Check contexts of garbage; return their settings or the messages, once for all tests."""
    found: list[ClusterProps | str] = []
    run(garbage(), CONTEXTS * 3 // 10, lambda context: found.append(check(context)))
    return found


def test_every_valid_context_is_taken_as_it_was_given() -> None:
    assert {props.purchase for props in valid_outcomes()} == {*PURCHASES}


def test_nearly_valid_context_is_valid_or_one_line() -> None:
    outcomes = [str(settings) for settings in nearly_valid_outcomes()]
    # Otherwise the contexts would be too valid, or too invalid.
    assert any(m.startswith("unknown setting") and "did you mean" in m for m in outcomes)
    assert any(m.startswith("ClusterProps(") for m in outcomes)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_checked(name: str) -> None:
    message = outcome({name: [{}]})
    assert isinstance(message, str)
    assert message.startswith(f"{name} must"), message


def test_garbage_is_valid_or_one_line() -> None:
    assert len(garbage_outcomes()) == CONTEXTS * 3 // 10


def all_settings() -> list[ClusterProps]:
    """Return the settings of every accepted context; equal ones give the same template, so they are here once.

    Those whose end has passed are left out: they synthesize to one line instead (tests/stacks/lifetime/test_expiry.py).
    """
    outcomes = [*valid_outcomes(), *nearly_valid_outcomes(), *garbage_outcomes()]
    accepted = {repr(settings): settings for settings in outcomes if isinstance(settings, ClusterProps)}
    return [props for props in accepted.values() if not props.has_expired]


def sample() -> list[ClusterProps]:
    """Return some of the last valid settings, which are the least simple; a sixth of them have a block."""
    found = valid_outcomes()
    blocks = [props for props in found if props.uses_capacity_block][-SAMPLE // 6 :]
    assert blocks
    return [*blocks, *[props for props in found if not props.uses_capacity_block][len(blocks) - SAMPLE :]]


@pytest.fixture(scope="module")
def synthesized(context: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[Path, ClusterProps]:
    """Return templates of generated settings."""
    props = all_settings() if SYNTHESIZES_ALL else sample()
    templates = synthesize_all(props, context, tmp_path_factory.mktemp("cdk.out"))
    assert len(templates) == len(props)
    return templates


def test_valid_settings_reach_the_template(synthesized: dict[Path, ClusterProps]) -> None:
    for path, props in synthesized.items():
        resources = json.loads(path.read_text())["Resources"].values()
        groups = [r["Properties"] for r in resources if r["Type"] == "AWS::AutoScaling::AutoScalingGroup"]
        declared = [1, props.worker_count] if props.has_zone and not props.uses_capacity_block else [0, 0]
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
