"""Test app.py as the CDK's command line runs it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stacks.missing_package import missing_message
from tests.stacks.existing_vpc import ACCOUNT, PIN, REGION, SETTINGS, VPC
from tests.waiting import wait_until

USER = f"arn:aws:iam::{ACCOUNT}:user/ann"
REPOSITORY = Path(__file__).resolve().parents[1]
KEPT = ("PATH", "HOME", "PYTHONPYCACHEPREFIX", "JSII_RUNTIME_PACKAGE_CACHE_ROOT")
"""Variables to keep; without the last two, if set, Python compiles the CDK and Node unpacks it in every test."""


VALIDATED = {"CDK_VALIDATION": "true"}


def app_variables(outdir: Path, context: dict[str, Any]) -> dict[str, str]:
    """Return the variables that the CDK's command line sets, by default without its own validator."""
    flags = json.loads((REPOSITORY / "cdk.json").read_text())["context"]
    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        "PYTHONDONTWRITEBYTECODE": "1",
        "CDK_CONTEXT_JSON": json.dumps({**flags, **context}),
        "CDK_OUTDIR": str(outdir),
        "CDK_VALIDATION": "false",
    }


def run_app(outdir: Path, context: dict[str, Any], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the app, by default without the CDK's own validator, which takes two thirds of the time."""
    return subprocess.run(
        [sys.executable, "app.py"],
        cwd=REPOSITORY,
        env={**app_variables(outdir, context), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def template(outdir: Path) -> dict[str, Any]:
    return dict(json.loads((outdir / "ClusterStack.template.json").read_text()))


def test_synthesizes_one_stack_named_as_the_cluster(tmp_path: Path) -> None:
    result = run_app(tmp_path, {"cluster_name": "vision", "worker_count": "3"}, **VALIDATED)
    assert result.returncode == 0, result.stderr
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    stacks = [a for a in manifest["artifacts"].values() if a["type"] == "aws:cloudformation:stack"]
    assert [stack["properties"]["stackName"] for stack in stacks] == ["vision"]
    assert stacks[0]["environment"] == "aws://unknown-account/unknown-region"
    # The CDK's command line prints the first line of a trace, which is one of jsii's own, above the price.
    metadata = json.loads((tmp_path / "ClusterStack.metadata.json").read_text())
    prices = [entry for entries in metadata.values() for entry in entries if "USD an hour" in str(entry["data"])]
    assert [entry.keys() for entry in prices] == [{"type", "data"}]


@pytest.mark.parametrize("key_name", [{}, {"key_name": "me", "ssh_location": "203.0.113.5/32"}])
def test_destroy_prints_no_price(tmp_path: Path, key_name: dict[str, str]) -> None:
    """The CDK's command line asks for no bundling then; the first case has warnings, with which app.py prints."""
    result = run_app(tmp_path, {**key_name, "aws:cdk:bundling-stacks": []})
    assert result.returncode == 0, result.stderr
    assert "USD an hour" not in (tmp_path / "ClusterStack.metadata.json").read_text() + result.stderr
    assert not result.stderr.endswith("\n\n")


def test_synth_warns_that_no_user_can_log_in(tmp_path: Path) -> None:
    text = run_app(tmp_path, {}).stderr
    assert "ssh_location is not set: the master accepts no SSH connection" in text
    assert "key_name is not set: nobody can log in over SSH" in text
    assert re.search(
        r"^costs \d+\.\d+ USD an hour .* with all nodes running, plus bucket, logs and traffic", text, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("context", "line"),
    [
        ({"worker_cout": 2}, "error: unknown setting 'worker_cout', did you mean worker_count?\n"),
        ({"worker-count": "2"}, "error: unknown setting 'worker-count', did you mean worker_count?\n"),
        ({"worker_count": "many"}, "error: worker_count must be a whole number, got 'many'\n"),
    ],
)
def test_wrong_setting_is_one_line_and_exit_code_2(tmp_path: Path, context: dict[str, Any], line: str) -> None:
    result = run_app(tmp_path, context)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", line)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    ("key", "refusal", "line"),
    [
        (PIN, "Request limit exceeded.", "the subnets of vpc_id: Request limit exceeded."),
        (
            PIN,
            f"You are not authorized to perform this operation.\nUser: {USER} is not authorized to perform: "
            "ec2:DescribeVpcs",
            f"the subnets of vpc_id: You are not authorized to perform this operation. User: {USER} is not authorized "
            "to perform: ec2:DescribeVpcs",
        ),
        (PIN, f"Could not find any VPCs: {VPC}", f"the subnets of vpc_id: Could not find any VPCs: {VPC}"),
        ("ssm:account=1:parameterName=/aws:region=us-west-2", "Rate exceeded", "the image: Rate exceeded"),
        ("other-provider:account=1", "Rate exceeded", "other-provider: Rate exceeded"),
    ],
)  # fmt: skip
def test_fails_when_aws_refuses_a_look_up_with_one_line(tmp_path: Path, key: str, refusal: str, line: str) -> None:
    """The CDK's command line passes on what AWS answers when it is throttled, denied, or has no such network."""
    context = {**SETTINGS, key: {"$providerError": refusal, "$dontSaveContext": True}}
    result = run_app(tmp_path, context, CDK_DEFAULT_ACCOUNT=ACCOUNT, CDK_DEFAULT_REGION=REGION)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"error: cannot look up {line}\n")


def test_missing_environment_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    # The message of a Python without it.
    (tmp_path / "aws_cdk.py").write_text("raise ModuleNotFoundError(name='aws_cdk')\n")
    result = run_app(tmp_path / "out", {}, PYTHONPATH=str(tmp_path))
    assert (result.returncode, result.stderr) == (1, f"error: {missing_message('aws_cdk')}\n")


def test_ctrl_c_during_the_synth_is_one_line_and_exit_code_130(tmp_path: Path) -> None:
    """A terminal interrupts the CDK's Node process too, whose end Python notices in the midst of a call."""
    started = tmp_path / "started"
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 60\n")
    node.chmod(0o755)
    variables = {**app_variables(tmp_path / "out", {}), "JSII_NODE": str(node), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=REPOSITORY,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as app:
        try:
            wait_until(started.exists, "the start of Node", timeout_s=60)
            os.killpg(app.pid, signal.SIGINT)
            out, err = app.communicate(timeout=60)
        finally:
            app.kill()
    assert (app.returncode, out, err) == (130, "", "interrupted during synthesis: nothing was deployed or destroyed\n")
    assert {path.name for path in tmp_path.iterdir()} <= {"node", "started", "out"}


def test_zone_outside_the_region_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    account = {"CDK_DEFAULT_ACCOUNT": "123456789012", "CDK_DEFAULT_REGION": "eu-west-1"}
    result = run_app(tmp_path, {"availability_zone": "us-east-1a"}, **account)
    line = "error: availability_zone must be a zone of eu-west-1, got 'us-east-1a'\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", line)


def test_without_credentials_cloudformation_resolves_the_ami(tmp_path: Path) -> None:
    assert run_app(tmp_path, {}, CDK_DEFAULT_REGION="eu-west-1").returncode == 0
    defaults = [parameter["Default"] for parameter in template(tmp_path)["Parameters"].values()]
    assert any(str(default).startswith("/aws/service/deeplearning/ami/x86_64/") for default in defaults)


def test_with_an_account_the_ami_recorded_in_the_context_is_used(tmp_path: Path) -> None:
    recorded = {"ssm:account=123456789012:parameterName=/team/ami:region=eu-west-1": "ami-0123456789abcdef0"}
    result = run_app(
        tmp_path,
        {"ami": "/team/ami", **recorded},
        CDK_DEFAULT_ACCOUNT="123456789012",
        CDK_DEFAULT_REGION="eu-west-1",
    )
    assert result.returncode == 0, result.stderr
    assert '"ImageId": "ami-0123456789abcdef0"' in json.dumps(template(tmp_path))


def test_first_lookup_pass_requests_only_the_ami(tmp_path: Path) -> None:
    account = {"CDK_DEFAULT_ACCOUNT": "123456789012", "CDK_DEFAULT_REGION": "eu-west-1"}
    # The CDK's command line judges the report itself, once every look-up is answered.
    judged_later = {"@aws-cdk/core:failSynthOnValidationErrors": False}
    result = run_app(tmp_path, {"availability_zone": "eu-west-1b", **judged_later}, **account, **VALIDATED)
    assert result.returncode == 0, result.stderr
    missing = json.loads((tmp_path / "manifest.json").read_text())["missing"]
    assert [look_up["provider"] for look_up in missing] == ["ssm"]
    # The pass with the answer prints the price.
    assert "USD an hour" not in result.stderr
