"""Test the checks of the caller, the key pair and the CDK's bootstrap."""

from pathlib import Path

import pytest

from cli.preflight.account import prerequisites
from tests.cli.preflight.stubbed_account import Account


def test_caller_and_the_region_are_named(account: Account) -> None:
    assert str(account.finds(prerequisites.check_credentials)) == (
        "ok       credentials     arn:aws:iam::123456789012:user/ann in eu-west-1"
    )


def test_warnings_of_the_settings_are_findings(account: Account) -> None:
    account.settings |= {"ssh_location": "0.0.0.0/0", "key_name": "me"}
    found = account.finds(prerequisites.check_settings)
    assert found.level == "warning"
    assert "whole internet" in found.sentence


def test_min_workers_is_recommended_with_a_setup(account: Account, tmp_path: Path) -> None:
    script = tmp_path / "setup.sh"
    script.write_text("#!/bin/sh\n")
    account.settings |= {"setup": str(script), "ssh_location": "192.0.2.0/24", "key_name": "me"}
    assert account.finds(prerequisites.check_settings).fix == "set min_workers, such as 0"
    account.settings["min_workers"] = 0
    assert account.check(prerequisites.check_settings) == []


def pairs(account: Account, *names: str) -> None:
    account.answers("ec2", "describe_key_pairs", {"KeyPairs": [{"KeyName": name} for name in names]})


def test_existing_key_pair_passes(account: Account) -> None:
    account.settings["key_name"] = "me"
    pairs(account, "other", "me")
    assert account.finds(prerequisites.check_key_pair).level == "ok"


@pytest.mark.parametrize(
    ("names", "fix"),
    [
        (["mine", "zoe"], "did you mean mine?"),
        (["zoe"], "aws ec2 import-key-pair --region eu-west-1 --key-name 'min' "),
        ([], "aws ec2 import-key-pair --region eu-west-1 --key-name 'min' "),
    ],
)
def test_missing_key_pair_is_a_problem_with_a_fix(account: Account, names: list[str], fix: str) -> None:
    account.settings["key_name"] = "min"
    pairs(account, *names)
    found = account.finds(prerequisites.check_key_pair)
    assert (found.level, found.sentence) == ("problem", "there is no key pair 'min' in eu-west-1")
    assert found.fix.startswith(fix)


def test_no_key_pair_is_looked_for_when_none_is_set(account: Account) -> None:
    assert account.check(prerequisites.check_key_pair) == []


@pytest.mark.parametrize(("version", "level"), [("6", "ok"), ("28", "ok"), ("5", "problem")])
def test_bootstrap_must_be_recent(account: Account, version: str, level: str) -> None:
    expected = {"Name": "/cdk-bootstrap/hnb659fds/version"}
    account.answers("ssm", "get_parameter", {"Parameter": {"Value": version}}, expected)
    assert account.finds(prerequisites.check_cdk_bootstrap).level == level


def test_account_without_bootstrap_is_a_problem_with_a_fix(account: Account) -> None:
    account.cdk_context["@aws-cdk/core:bootstrapQualifier"] = "team"
    account.refuses("ssm", "get_parameter", "ParameterNotFound", {"Name": "/cdk-bootstrap/team/version"})
    found = account.finds(prerequisites.check_cdk_bootstrap)
    assert (found.level, found.fix) == ("problem", "cdk bootstrap aws://123456789012/eu-west-1")
