"""Set limits by hand, and read them like the control plane."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from local.__main__ import main
from local.control_plane.limits.limit_files import CAPACITY_FILE, QUOTA_FILE, Capacity, read_capacities, read_quotas
from local.faults.limits import lift_limits


@pytest.fixture
def local_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCAL_AWS_DIR", str(tmp_path))
    # main() handles signals, and the test run has its own handlers
    monkeypatch.setattr("local.__main__.signal.signal", lambda *_: None)
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, line: str) -> int:
    monkeypatch.setattr(sys, "argv", ["local-aws", *line.split()])
    return main()


def test_new_limit_replaces_one_of_the_same_pool_and_can_be_lifted(
    local_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("p5.48xlarge us-east-1a 4", "p5.48xlarge us-east-1a 8 --spot", "p5.48xlarge us-east-1a 2"):
        assert call(monkeypatch, f"capacity {line}") == 0
    assert capsys.readouterr().out.endswith("us-east-1a has capacity for 2 On-Demand instances of p5.48xlarge\n")
    on_demand = Capacity(instance_type="p5.48xlarge", zone="us-east-1a", count=2)
    spot = replace(on_demand, count=8, spot=True)
    assert read_capacities(local_aws / CAPACITY_FILE) == (spot, on_demand)
    call(monkeypatch, "capacity p5.48xlarge us-east-1a any")
    assert read_capacities(local_aws / CAPACITY_FILE) == (spot,)


def test_quota_is_set_and_lifted(
    local_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "quota spot-p 192") == 0
    assert read_quotas(local_aws / QUOTA_FILE) == {"spot-p": 192}
    assert capsys.readouterr().out == "set the quota spot-p to 192 vCPUs\n"
    call(monkeypatch, "quota elastic-ips 2")
    assert capsys.readouterr().out == "set the quota elastic-ips to 2\n"
    for _ in range(2):
        lift_limits(local_aws)
    assert read_quotas(local_aws / QUOTA_FILE) == {}


@pytest.mark.usefixtures("local_aws")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("capacity p5.48xlarge us-east-1a -1", "N: must be a whole number from 0 or any, got '-1'"),
        ("quota gpus 4", "invalid choice: 'gpus'"),
    ],
)
def test_wrong_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    assert call(monkeypatch, line) == 2
    assert problem in capsys.readouterr().err
