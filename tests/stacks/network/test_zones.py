"""Test which zone is the default, and that it is looked up once; test_pinned_zone tests the lookup itself."""

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from stacks.settings.network import first_zone, zones_context_key
from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack

ACCOUNT, REGION = "111111111111", "us-west-2"
PIN = "availability-zones:account=111111111111:region=us-west-2"
SUBNET = "AWS::EC2::Subnet"


@pytest.mark.parametrize(
    ("listed", "first"),
    [
        (["us-west-2c", "us-west-2b", "us-west-2d"], "us-west-2b"),
        # In alphabetical order, Local and Wavelength Zones precede the region's own.
        (["us-west-2-lax-1a", "us-west-2-wl1-den-wlz-1", "us-west-2b"], "us-west-2b"),
        (["us-west-21a", "us-west-2aa", "xus-west-2a"], None),
        ([], None),
    ],
)
def test_first_of_the_regions_own_zones_counts(listed: list[str], first: str | None) -> None:
    assert first_zone(listed, REGION) == first


def warnings_of(outdir: Path) -> list[str]:
    """Return the warnings about the zone that ``cdk synth`` prints."""
    manifest = json.loads((outdir / "manifest.json").read_text())
    metadata = manifest["artifacts"]["ClusterStack"].get("metadata")
    if metadata is None:
        metadata = json.loads((outdir / "ClusterStack.metadata.json").read_text())
    entries = [entry for found in metadata.values() for entry in found]
    return [str(entry["data"]) for entry in entries if entry["type"] == "aws:cdk:warning" and "zone" in entry["data"]]


def synthesize(
    context: dict[str, Any], outdir: Path, *, env: cdk.Environment | None, **settings: Any
) -> tuple[list[Any], set[str], Any]:
    """Synthesize; return the missing context, the subnets' zones, and the zone that the guard records."""
    app = cdk.App(context=context, outdir=str(outdir), builtin_cloud_formation_validation=False)
    ClusterStack(app, "ClusterStack", props=ClusterProps(ami="ami-01234567", **settings), env=env)
    app.synth()
    template = json.loads((outdir / "ClusterStack.template.json").read_text())
    missing = json.loads((outdir / "manifest.json").read_text()).get("missing", [])
    subnets = [resource for resource in template["Resources"].values() if resource["Type"] == SUBNET]
    [recorded] = [value["Default"] for name, value in template["Parameters"].items() if "AvailabilityZone" in name]
    return missing, {json.dumps(subnet["Properties"]["AvailabilityZone"]) for subnet in subnets}, recorded


def test_zones_are_looked_up_once(context: dict[str, Any], tmp_path: Path) -> None:
    env = cdk.Environment(account=ACCOUNT, region=REGION)
    missing, _, _ = synthesize(context, tmp_path, env=env)
    assert [(lookup["key"], lookup["provider"]) for lookup in missing] == [(PIN, "availability-zones")]
    assert zones_context_key(ACCOUNT, REGION) == PIN


def test_zone_is_written_out_and_recorded(context: dict[str, Any], tmp_path: Path) -> None:
    env = cdk.Environment(account=ACCOUNT, region=REGION)
    known = {PIN: ["us-west-2-lax-1a", "us-west-2c", "us-west-2b"]}
    assert synthesize(context | known, tmp_path, env=env) == ([], {'"us-west-2b"'}, "us-west-2b")
    assert not warnings_of(tmp_path)


def test_zone_that_is_set_is_not_looked_up(context: dict[str, Any], tmp_path: Path) -> None:
    env = cdk.Environment(account=ACCOUNT, region=REGION)
    found = synthesize(context, tmp_path, env=env, availability_zone="us-west-2d")
    assert found == ([], {'"us-west-2d"'}, "us-west-2d")


@pytest.mark.parametrize("env", [None, cdk.Environment(region=REGION)], ids=["no region", "no account"])
def test_without_an_account_cloudformation_chooses(
    context: dict[str, Any], tmp_path: Path, env: cdk.Environment | None
) -> None:
    missing, subnets, recorded = synthesize(context, tmp_path, env=env)
    assert (missing, recorded) == ([], "unpinned")
    [zone] = subnets
    assert "Fn::GetAZs" in zone
    [warning] = warnings_of(tmp_path)
    assert warning.startswith(
        "availability_zone is not set and could not be looked up without credentials: "
        "CloudFormation chooses the zone, and the stack records 'unpinned'"
    )
    assert "\n" not in warning
