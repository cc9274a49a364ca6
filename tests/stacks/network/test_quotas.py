"""Check that preflight's quotas match the resources that the stack creates."""

from typing import Any

from cli.preflight.quotas import network


def test_preflight_counts_what_the_template_has(template: dict[str, Any]) -> None:
    kinds = [resource["Type"] for resource in template["Resources"].values()]
    assert 0 < kinds.count("AWS::EC2::EIP") <= network.ELASTIC_IPS
    assert kinds.count("AWS::EC2::VPC") == network.VPCS
