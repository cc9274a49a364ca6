"""Refresh the catalog from EC2's descriptions, which moto has for every type."""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cli.catalog import refresh
from stacks.catalog.gpu_types import CATALOG_FILE, GPU_TYPES


@pytest.fixture(scope="module")
def described() -> list[dict[str, Any]]:
    spec = find_spec("moto")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "ec2/resources/instance_types.json.gz"
    return list(json.loads(gzip.decompress(path.read_bytes())).values())


@pytest.fixture
def stored_types() -> dict[str, Any]:
    return dict(json.loads(CATALOG_FILE.read_text())["types"])


def test_refreshed_catalog_equals_ec2s_answer(described: list[dict[str, Any]], stored_types: dict[str, Any]) -> None:
    new = refresh.merge(stored_types, refresh.rows(described))
    assert list(refresh.difference(stored_types, new)) == []
    # Types that EC2 no longer describes stay, with their successor.
    assert new["p3.2xlarge"]["successor"] == "g6.2xlarge"
    text = CATALOG_FILE.read_text()
    assert refresh.render(new, json.loads(text)["date"]) == text


def test_shows_what_has_changed(described: list[dict[str, Any]], stored_types: dict[str, Any]) -> None:
    stored_types["p5.48xlarge"]["efa_interfaces"] = 8
    del stored_types["g7.2xlarge"]
    new = refresh.merge(stored_types, refresh.rows(described))
    added, changed = refresh.difference(stored_types, new)
    assert added.startswith("+ g7.2xlarge: {")
    assert changed == "  p5.48xlarge: efa_interfaces 8 -> 32"


def test_leaves_out_a_type_whose_efa_cards_are_scattered(
    described: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    like = next(instance_type for instance_type in described if instance_type["InstanceType"] == "p6-b300.48xlarge")
    types = ["interface"], ["interface", "efa"]
    cards = [{"NetworkCardIndex": n, "InterfaceTypes": types[n in (1, 5)]} for n in range(17)]
    odd = {**like, "InstanceType": "p9.48xlarge", "NetworkInfo": {**like["NetworkInfo"], "NetworkCards": cards}}
    assert refresh.rows([odd]) == {}
    assert "left p9.48xlarge out: EFA on network cards [1, 5]" in capsys.readouterr().err


def test_first_card_of_p6_b300_has_no_efa() -> None:
    found = GPU_TYPES["p6-b300.48xlarge"]
    assert (found.network_cards, found.efa_interfaces, found.first_efa_card) == (17, 16, 1)
