"""Check rows of settings, in which all pairs of values occur, with cfn-lint, cdk-nag and the CDK's own validator.

``make test`` takes the first dozen rows, ``make soak`` sixty and more, until every possible pair has occurred.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from cdk_nag import AwsSolutionsChecks

from stacks.settings.base import SettingsError
from stacks.settings.props import SETTINGS
from stacks.stack import ClusterStack
from tests.stacks import existing_vpc
from tests.stacks.pairwise import PARAMETERS, pairs, possible_pairs, props_of, rows
from tests.stacks.pinned_block import with_block
from tests.stacks.validation_report import IGNORED, violations

ROWS = int(os.environ.get("ROWS", "12"))
AMI = "ami-0123456789abcdef0"
EXCLUDED = {
    ("workers", "master"): 2,  # no workers: the master has their type, and trains
    ("type", "master"): 1,  # processors of two kinds
    ("type", "image"): 1,  # both name an ami
    ("type", "frameworks"): 1,  # MXNet is not built for ARM
    ("master", "frameworks"): 2,  # MXNet starts on a master that trains
    ("log in", "network"): 2,  # nothing outside reaches a private cluster
    ("log in", "hardened"): 1,  # which is private
    ("network", "hardened"): 1,  # and has no public subnet
    ("network", "zones"): 2,  # the stack does not choose zones in a VPC that exists,
    ("network", "flow logs"): 2,  # nor log its traffic
    ("network", "shared storage"): 3,  # Lustre is only reachable in a VPC that exists,
    ("flow logs", "shared storage"): 1,  # which the stack does not log
    ("purchase", "zones"): 2,  # a reservation and a block are in one zone,
    ("zones", "shared storage"): 1,  # or choose a zone for
    ("hardened", "key"): 1,  # both name the key
    ("hardened", "shared storage"): 1,  # a file system of the stack's is in no backup plan
}
"""Parameters of which some values exclude each other, the number of such pairs, and why; add no line without a
reason."""
SEED = int(os.environ.get("SEED", "1"))


@pytest.fixture(scope="module")
def chosen() -> list[dict[str, int]]:
    return [*islice(rows(SEED), ROWS)]


def test_rows_contain_every_possible_pair(chosen: list[dict[str, int]]) -> None:
    wanted = possible_pairs().keys()
    found = wanted & set().union(*map(pairs, chosen))
    # A dozen rows cannot contain them all; the soak covers the rest.
    assert len(found) >= len(wanted) * (1 if ROWS >= 60 else 0.85)
    # Many more pairs are possible than not; otherwise the values would be too odd to prove anything.
    assert len(wanted) > 1500


def test_no_other_settings_exclude_each_other() -> None:
    possible = possible_pairs()
    choices = [(parameter, number) for parameter, values in PARAMETERS.items() for number in range(len(values))]
    impossible = [
        pair for pair in combinations(choices, 2) if pair[0][0] != pair[1][0] and frozenset(pair) not in possible
    ]
    assert Counter((one, other) for (one, _), (other, _) in impossible) == EXCLUDED


def test_two_settings_that_exclude_each_other_are_one_line() -> None:
    network = next(number for number, settings in enumerate(PARAMETERS["network"]) if settings.get("private"))
    with pytest.raises(SettingsError, match="ssh_location must be left out with private"):
        props_of({"log in": 1, "network": network})


def test_every_setting_is_varied() -> None:
    varied = {name for values in PARAMETERS.values() for value in values for name in value}
    assert varied == {*SETTINGS}


@pytest.fixture(scope="module")
def outdir(context: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, chosen: list[dict[str, int]]) -> Path:
    """Synthesize each row as a stack, with the validators; return the directory of the templates."""
    settings = [*map(props_of, chosen)]
    looked_up = existing_vpc.LOOKED_UP | {
        f"ssm:account={existing_vpc.ACCOUNT}:parameterName={props.ami_source}:region={existing_vpc.REGION}": AMI
        for props in settings
    }
    for number, props in enumerate(settings):
        if props.uses_capacity_block:
            settings[number], pins = with_block(props, number)
            looked_up |= pins
    made = tmp_path_factory.mktemp("rows")
    app = cdk.App(context=context | looked_up, outdir=str(made))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    env = cdk.Environment(account=existing_vpc.ACCOUNT, region=existing_vpc.REGION)
    for number, props in enumerate(settings):
        ClusterStack(app, f"Row{number}", props=props, env=env if props.vpc_id or props.uses_capacity_block else None)
    app.synth()
    return made


def test_no_validator_finds_anything_in_any_row(outdir: Path) -> None:
    assert violations(outdir) == []
    cfn_lint = str(Path(sys.executable).with_name("cfn-lint"))
    command = [cfn_lint, "--ignore-checks", *IGNORED, "--regions", existing_vpc.REGION, "--"]
    templates = [str(outdir / f"Row{number}.template.json") for number in range(ROWS)]
    # Check all together, because starting takes longer than reading a template.
    result = subprocess.run([*command, *templates], capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_no_row_has_a_function_or_a_custom_resource(outdir: Path) -> None:
    # Nothing of the stack runs code in the account outside of the nodes.
    for number in range(ROWS):
        template = json.loads((outdir / f"Row{number}.template.json").read_text())
        types = {resource["Type"] for resource in template["Resources"].values()}
        assert "AWS::AutoScaling::AutoScalingGroup" in types
        assert not {
            resource_type
            for resource_type in types
            if resource_type.startswith(("AWS::Lambda::", "AWS::CloudFormation::", "Custom::"))
        }
