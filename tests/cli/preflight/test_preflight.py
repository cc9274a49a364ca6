"""Test the complete command, against an account that lacks much and a moto that lacks more."""

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from cli.main import main
from cli.preflight import checks
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import Check, PreflightTarget
from tests.cli.moto_cluster import REGION
from tests.cli.preflight.stubbed_account import Account


@pytest.fixture(autouse=True)
def _quick(aws: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = {"cluster_name": "demo", "instance_type": "c5.large", "key_name": "me", "ssh_location": "192.0.2.1/32"}
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": settings}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the findings by subject, without it."""
    out = capsys.readouterr().out
    return {line[9:25].strip(): f"{line[:9].strip()} {line[25:]}" for line in out.splitlines()}


def bootstrap() -> None:
    """Leave the parameter of ``cdk bootstrap`` in the account."""
    ssm = boto3.client("ssm", region_name=REGION)
    ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="28", Type="String")


def test_everything_missing_in_an_empty_account_is_reported(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = boto3.client("ec2", region_name=REGION).register_image(Name="mine", Architecture="x86_64")["ImageId"]
    assert main(["preflight", "-c", f"ami={image}"]) == 1
    found = lines(capsys)
    assert found["credentials"].startswith("ok arn:aws:")
    assert found["key pair"].startswith("problem there is no key pair 'me' in eu-west-1: aws ec2 import-key-pair")
    assert found["instance type"] == "ok c5.large is offered in eu-west-1a; also in eu-west-1b, eu-west-1c"
    assert found["service role"].startswith("warning there is no AWSServiceRoleForAutoScaling: the deploy creates it")
    assert found["cdk bootstrap"].startswith(
        "problem not done in eu-west-1, so its roles are not checked: cdk bootstrap"
    )
    assert found["VPC"] == "ok the cluster needs 1; VPCs per Region: 5, 1 in use"
    assert found["interface quota"] == "ok the cluster needs 3; Network interfaces per Region: 5000, 0 in use"
    assert found["stack"] == "ok there is no stack demo yet"


def test_denied_check_is_reported_in_one_line(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bootstrap()
    main(["preflight"])
    found = lines(capsys)
    refused = "warning could not check: AWS refused GetAWSDefaultServiceQuota: HTTP status 500"
    assert found["vCPU quota"] == refused
    assert (
        found["permissions"]
        == "warning could not check: cannot call AWS: something else answers in place of the region eu-west-1"
    )


def test_missing_bootstrap_is_the_only_finding_about_its_roles(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["preflight", "-c", "expires=2999-12-01T18:00:00Z", "-c", "expiry_action=delete"])
    printed = capsys.readouterr().out
    assert [line[9:25].strip() for line in printed.splitlines() if "cdk bootstrap" in line] == ["cdk bootstrap"]
    assert not {"permissions", "expiry"} & {line[9:25].strip() for line in printed.splitlines()}


def test_price_is_the_last_line_and_no_line_appears_twice(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["preflight", "-c", "worker_count=2"])
    printed = capsys.readouterr().out.splitlines()
    # Nodes 3 * 0.085, volumes 3 * 150 GiB, NAT gateway and addresses 0.055.
    cost = "3 nodes will cost 0.36 USD an hour (list prices of us-east-1, 2026-07-20), busy or idle"
    assert printed[-1] == f"ok       price           {cost}; bucket, logs and traffic cost extra"
    assert len(printed) == len({*printed})


def test_findings_become_ok_once_the_account_is_fixed(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boto3.client("ec2", region_name=REGION).create_key_pair(KeyName="me")
    bootstrap()
    main(["preflight"])
    found = lines(capsys)
    assert found["key pair"] == "ok me exists in eu-west-1"
    assert found["cdk bootstrap"] == "ok version 28 is there"


def test_missing_credentials_are_the_only_problem_shown(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert main(["preflight"]) == 1
    out, err = capsys.readouterr()
    assert err == "dlcluster: 1 problem above\n"
    assert out.startswith("problem  credentials     no AWS credentials: Unable to locate credentials: aws configure")
    assert out.count("\n") == 1


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "http_proxy"])
def test_unreachable_aws_is_the_only_problem_shown(
    app: Path, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if variable == "http_proxy":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://sts.invalid")
    monkeypatch.setenv(variable, "http://localhost:1")
    assert main(["preflight"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("problem  connection      cannot call AWS: ")
    assert out.endswith(": check the region, the network, the proxy (HTTPS_PROXY) and AWS_ENDPOINT_URL\n")
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-c", "worker-count=3"], "unknown setting 'worker-count', did you mean worker_count?"),
        (["-c", "worker_count"], "-c must be name=value, got 'worker_count'"),
    ],
)
def test_wrong_setting_is_a_usage_error(
    app: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", *words]) == 2
    assert capsys.readouterr().err == f"dlcluster: {message}\n"


def test_cluster_names_the_stack_to_look_for(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["preflight", "--cluster", "other"])
    assert lines(capsys)["stack"] == "ok there is no stack other yet"


# ---- the checks put together ----


def fair(_: PreflightTarget) -> Iterator[Finding]:
    yield ok("a", "fine")
    yield warning("b", "so so")


def poor(_: PreflightTarget) -> Iterator[Finding]:
    yield problem("c", "bad", "mend it")


def denied(target: PreflightTarget) -> Iterator[Finding]:
    yield ok("d", "half of it")
    target.clients.ec2.describe_vpcs()


def unreachable(_: PreflightTarget) -> Iterator[Finding]:
    raise EndpointConnectionError(endpoint_url="https://nowhere")
    yield


def broken(_: PreflightTarget) -> Iterator[Finding]:
    yield ok("f", "half of it")
    raise KeyError("SubnetId\n")


@pytest.mark.parametrize(
    ("run", "code"), [([fair], 0), ([fair, poor], 1), ([poor, fair], 1), ([unreachable], 0), ([broken, fair], 1)]
)
def test_only_problems_make_preflight_fail(
    app: Path, run: list[Check], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CHECKS", tuple(("x", check) for check in run))
    assert main(["preflight"]) == code


def test_refused_call_ends_one_check_only(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECKS", (("d", denied), ("e", unreachable), ("f", broken), ("a", fair)))
    identity = {"Account": "1", "Arn": account.caller, "UserId": "u"}
    account.answers("sts", "get_caller_identity", identity)
    account.refuses("ec2", "describe_vpcs", "UnauthorizedOperation")
    found = list(checks.findings(account.clients, account.target().props, {}))
    assert [(f.level, f.subject, f.sentence) for f in found] == [
        ("ok", "d", "half of it"),
        ("warning", "d", "could not check: AWS refused DescribeVpcs: UnauthorizedOperation: no"),
        (
            "warning",
            "e",
            'could not check: cannot call AWS: Could not connect to the endpoint URL: "https://nowhere"',
        ),
        ("ok", "f", "half of it"),
        ("problem", "f", "could not check: KeyError: 'SubnetId\\n'"),
        ("ok", "a", "fine"),
        ("warning", "b", "so so"),
    ]
