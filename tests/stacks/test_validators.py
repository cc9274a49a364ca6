"""Check the synthesized stack with three validators: cfn-lint, cdk-nag and the CDK's own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from cdk_nag import AwsSolutionsChecks

from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack
from tests.stacks.validation_report import IGNORED, violations

SETTINGS: list[dict[str, Any]] = [
    {"worker_count": 4, "min_workers": 1, "key_name": "mine", "ssh_location": "203.0.113.0/24"},
    {"availability_zone": "us-east-1b", "ssh_location": "0.0.0.0/0", "ami": "/team/ami"},
    {"instance_type": "p6-b300.48xlarge", "private": True, "purchase": "spot"},
]
"""Settings besides those of test_pairwise.py."""


def cluster(context: dict[str, Any], outdir: Path, **settings: Any) -> tuple[cdk.App, ClusterStack]:
    app = cdk.App(context=context, outdir=str(outdir))
    return app, ClusterStack(app, "ClusterStack", props=ClusterProps(**settings))


def test_cdks_own_validator_and_cfn_lint_find_nothing(context: dict[str, Any], tmp_path: Path) -> None:
    for number, settings in enumerate(SETTINGS):
        app, _ = cluster(context, tmp_path / str(number), **settings)
        app.synth()
        assert violations(tmp_path / str(number)) == []
    cfn_lint = str(Path(sys.executable).with_name("cfn-lint"))
    command = [cfn_lint, "--ignore-checks", *IGNORED, "--regions", "us-east-1", "--"]
    # Check all together, because starting takes longer than reading a template.
    result = subprocess.run(
        [*command, *map(str, tmp_path.glob("*/ClusterStack.template.json"))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@pytest.mark.parametrize("settings", SETTINGS)
def test_cdk_nag_finds_nothing(context: dict[str, Any], tmp_path: Path, settings: dict[str, Any]) -> None:
    if settings.get("ssh_location") == "0.0.0.0/0":
        settings = {**settings, "ssh_location": "203.0.113.0/24"}
    app, _ = cluster(context, tmp_path, **settings)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    assert violations(tmp_path) == []


def test_cdk_nag_refuses_logins_from_the_world(context: dict[str, Any], tmp_path: Path) -> None:
    app, _ = cluster(context, tmp_path, ssh_location="0.0.0.0/0")
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    assert violations(tmp_path) == [
        ("AwsSolutions-EC23", "ClusterStack/Cluster/Security/AdminSsh/Resource"),
    ]


def test_error_of_the_cdks_own_validator_stops_the_synth(context: dict[str, Any], tmp_path: Path) -> None:
    app, stack = cluster(context, tmp_path)
    launch_template = stack.cluster.master.launch_template.node.default_child
    assert isinstance(launch_template, ec2.CfnLaunchTemplate)
    launch_template.add_property_override("LaunchTemplateData.ImageId", "no-image")
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    assert violations(tmp_path) == [("E1152", "ClusterStack/Cluster/Master/LaunchTemplate/Resource")]
