"""Refresh the prices from answers in the form of the Price List API's."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from cli.costs import refresh
from cli.costs.price_file import render
from stacks.prices.price_list import PRICES_FILE


def product(price: str, unit: str, **attributes: str) -> str:
    tier = {"unit": unit, "beginRange": "0", "pricePerUnit": {"USD": price}}
    terms = {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": tier}}}}
    return json.dumps({"product": {"attributes": attributes}, "terms": terms})


NODES = [
    product("0.9", "Hrs", instanceType="g6.xlarge"),
    product("0.1", "Hrs", instanceType="c5.large"),
    product("0.5", "Hrs", instanceType="a1.large"),
]
BUCKET, STORAGE, VOLUME = ([product(price, "GB-Mo")] for price in ("0.024", "0.33", "0.09"))
NAT, ADDRESS = ([product(price, "Hrs")] for price in ("0.05", "0.005"))


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Copy the file, for the script to write."""
    copy = tmp_path / "price_list.json"
    copy.write_text(PRICES_FILE.read_text())
    monkeypatch.setattr(refresh, "PRICES_FILE", copy)
    return copy


@pytest.fixture
def pricing(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    client = boto3.client("pricing", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    monkeypatch.setattr("boto3.Session.client", lambda *_words, **_named: client)
    return Stubber(client)


def answer(stub: Stubber, *lists: list[str]) -> None:
    for found in lists:
        stub.add_response("get_products", {"FormatVersion": "aws_v1", "PriceList": found})


def test_region_is_added_and_the_others_stay(pricing: Stubber, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(pricing, NODES, BUCKET, STORAGE, VOLUME, [*NAT, product("0.05", "GB")], ADDRESS)
    with pricing:
        assert refresh.main(["eu-west-1"]) == 0
    assert capsys.readouterr().out.startswith("+ eu-west-1: 7 prices\nwrote ")
    before: dict[str, Any] = json.loads(PRICES_FILE.read_text())
    found = json.loads(file.read_text())
    added = found.pop("eu-west-1")
    assert found == before
    assert added.pop("date")
    assert added == {
        "bucket_gb_month": 0.024, "efs_gb_month": 0.33, "gp3_gib_month": 0.09, "nat_gateway_hour": 0.05,
        "public_address_hour": 0.005,
        # a1 is ARM, which clusters cannot use.
        "instances": {"c5": {"large": 0.1}, "g6": {"xlarge": 0.9}},
    }  # fmt: skip


@pytest.mark.parametrize("check", [False, True])
def test_difference_is_shown(pricing: Stubber, file: Path, capsys: pytest.CaptureFixture[str], *, check: bool) -> None:
    prices = {"c5": {"large": 0.2, "metal": 4.0}, "g6": {"xlarge": 0.9}}
    parts = {"bucket_gb_month": 0.023, "efs_gb_month": 0.33, "gp3_gib_month": 0.09, "nat_gateway_hour": 0.05}
    known = {"eu-west-1": {"date": "2020-01-01", **parts, "public_address_hour": 0.005, "instances": prices}}
    file.write_text(json.dumps(known))
    answer(pricing, NODES, BUCKET, STORAGE, VOLUME, NAT, ADDRESS)
    with pricing:
        assert refresh.main(["eu-west-1", *(["--check"] if check else [])]) == int(check)
    shown = capsys.readouterr().out.splitlines()
    assert shown[:3] == [
        "  eu-west-1: bucket_gb_month 0.023 -> 0.024",
        "  eu-west-1: c5.large 0.2 -> 0.1",
        "  eu-west-1: c5.metal 4.0 -> None",
    ]
    assert (json.loads(file.read_text()) == known) is check
    assert len(shown) == (3 if check else 4)


def test_file_is_as_the_script_renders_it() -> None:
    regions = {name: refresh._flat(prices) for name, prices in json.loads(PRICES_FILE.read_text()).items()}
    assert render(regions) == PRICES_FILE.read_text()


@pytest.mark.parametrize(
    ("lists", "output"),
    [
        ([[]], "no instance type has a price in mars-1: is it a region?"),
        (
            [NODES, [*BUCKET, product("0.1", "GB-Mo")]],
            "bucket_gb_month must have one price in mars-1, got ['0.024', '0.1']",
        ),
        ([NODES, []], "bucket_gb_month must have one price in mars-1, got none"),
    ],
)
def test_missing_or_ambiguous_price_leaves_the_file_unchanged(
    pricing: Stubber, file: Path, lists: list[list[str]], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(pricing, *lists)
    with pricing:
        assert refresh.main(["mars-1"]) == 1
    assert capsys.readouterr().err == f"refresh: {output}\n"
    assert file.read_text() == PRICES_FILE.read_text()
