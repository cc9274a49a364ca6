"""Test that a cluster's own file system counts by its metered size, even while the cluster is paused."""

import json
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from cli.main import main
from tests.cli.node_groups.nodeless_cluster import NodelessCluster

FILE_SYSTEM = "fs-0123456789abcdef0"
OUTPUT = {"OutputKey": "SharedStorage", "OutputValue": FILE_SYSTEM}


@pytest.fixture
def file_system_refusals(deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Give the cluster a file system of 730 GB; an exception in the list denies the query for its size."""
    assert deployed
    original, refusals = getattr(BaseClient, "_make_api_call"), list[Any]()  # noqa: B009

    def answer(self: Any, operation: str, parameters: Any) -> Any:
        if operation == "DescribeFileSystems":
            if refusals:
                raise refusals[0]
            assert parameters == {"FileSystemId": FILE_SYSTEM}
            return {"FileSystems": [{"SizeInBytes": {"Value": 730 * 10**9}}]}
        found: Any = original(self, operation, parameters)
        if operation == "DescribeStacks":
            for stack in found["Stacks"]:
                stack["Outputs"] = [*stack.get("Outputs", []), OUTPUT]
        if operation == "GetTemplate":
            found["TemplateBody"]["Resources"]["FileSystem"] = {"Type": "AWS::EFS::FileSystem"}
        return found

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    return refusals


@pytest.mark.usefixtures("file_system_refusals")
def test_shared_storage_costs_by_its_size_also_while_paused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pause", "--yes"]) == 0
    # 730 GB at 0.30 per month of 730 hours.
    message = (
        "still costs 0.355 USD an hour, 259 a month (NAT gateway 0.045, public addresses 0.010, shared storage 0.300)"
    )
    assert message in capsys.readouterr().err
    assert main(["cost", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usd_per_hour_by_kind"]["shared_storage"] == pytest.approx(0.3)
    assert found["usd_per_hour"] == pytest.approx(0.355)


def test_denied_file_system_size_is_left_out_of_cost(
    file_system_refusals: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file_system_refusals.append(
        ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeFileSystems")
    )
    assert main(["cost", "--json"]) == 0
    out, output = capsys.readouterr()
    assert output == (
        "dlcluster: the shared storage is not counted: AWS refused DescribeFileSystems: AccessDenied: no\n"
    )
    assert "shared_storage" not in json.loads(out)["usd_per_hour_by_kind"]
