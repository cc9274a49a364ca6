"""Describe an existing VPC like the CDK's lookup: a public subnet, and a private one in a secondary block."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aws_cdk as cdk

from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack

ACCOUNT, REGION = "111111111111", "us-west-2"
ENV = cdk.Environment(account=ACCOUNT, region=REGION)
VPC, MASTER, WORKERS = "vpc-0123456789abcdef0", "subnet-0aaaaaaaaaaaaaaa1", "subnet-0bbbbbbbbbbbbbbb2"
SETTINGS: Final = {"vpc_id": VPC, "subnet_id": WORKERS, "master_subnet_id": MASTER}
PIN: Final = (
    f"vpc-provider:account={ACCOUNT}:filter.vpc-id={VPC}:region={REGION}"
    ":returnAsymmetricSubnets=true:returnVpnGateways=false"
)


def described(subnets: Sequence[tuple[str, str, str, str]]) -> dict[str, Any]:
    """Return the lookup's answer, as stored in cdk.context.json, for subnets (type, id, block, zone)."""
    groups = [
        {
            "name": kind,
            "type": kind,
            "subnets": [{"subnetId": name, "cidr": cidr, "availabilityZone": zone, "routeTableId": "rtb-1"}],
        }
        for kind, name, cidr, zone in subnets
    ]
    return {PIN: {"vpcId": VPC, "vpcCidrBlock": "10.8.0.0/16", "availabilityZones": [], "subnetGroups": groups}}


LOOKED_UP: Final = described(
    [("Public", MASTER, "10.8.0.0/24", "us-west-2b"), ("Private", WORKERS, "100.64.0.0/20", "us-west-2b")]
)


def synthesize(
    context: dict[str, Any], outdir: Path, *, env: cdk.Environment | None = ENV, **settings: Any
) -> tuple[dict[str, Any], list[Any]]:
    """Return the template, and what remains to be looked up."""
    app = cdk.App(context=context, outdir=str(outdir), builtin_cloud_formation_validation=False)
    props = ClusterProps(**{"ami": "ami-01234567", **SETTINGS, **settings})
    ClusterStack(app, "ClusterStack", props=props, env=env)
    app.synth()
    template = json.loads((outdir / "ClusterStack.template.json").read_text())
    return template, json.loads((outdir / "manifest.json").read_text()).get("missing", [])
