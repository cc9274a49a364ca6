"""What a node reads from its metadata service is the synthesized template, resolved."""

import json
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.e2e.conftest import STACK, Cluster

REPOSITORY = Path(__file__).parents[2]
READ_USER_DATA = """
token=$(curl -sS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)
curl -sS -H "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest/user-data | base64
"""


class References:
    """Values that CloudFormation gives to a template's references, from the AWS APIs."""

    def __init__(self) -> None:
        formation = boto3.client("cloudformation")
        self._stack_id = formation.describe_stacks(StackName=STACK)["Stacks"][0]["StackId"]
        resources = formation.describe_stack_resources(StackName=STACK)["StackResources"]
        self._physical = {r["LogicalResourceId"]: r["PhysicalResourceId"] for r in resources}
        self._account = boto3.client("sts").get_caller_identity()["Account"]
        self._iam = boto3.client("iam")

    def ref(self, name: str) -> str:
        pseudo = {
            "AWS::Region": "us-east-1",
            "AWS::AccountId": self._account,
            "AWS::StackId": self._stack_id,
            "AWS::StackName": STACK,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
        }
        return pseudo.get(name) or self._physical[name]

    def attribute(self, name: str, attribute: str) -> str:
        if attribute == "AllocationId":
            found = boto3.client("ec2").describe_addresses(PublicIps=[self._physical[name]])["Addresses"]
            return str(found[0]["AllocationId"])
        assert attribute == "RoleId"
        return str(self._iam.get_role(RoleName=self._physical[name])["Role"]["RoleId"])

    def resolve(self, value: Any) -> str:
        match value:
            case str():
                return value
            case {"Ref": name}:
                return self.ref(name)
            case {"Fn::GetAtt": [name, attribute]}:
                return self.attribute(name, attribute)
            case {"Fn::Join": [separator, parts]}:
                return str(separator).join(self.resolve(part) for part in parts)
            case {"Fn::Sub": str(text)}:
                for name in ("AWS::Region", "AWS::AccountId", "AWS::Partition", "AWS::URLSuffix", "AWS::StackName"):
                    text = text.replace(f"${{{name}}}", self.ref(name))
                assert "${" not in text.replace("${id", "")
                return text
            case _:
                raise AssertionError(f"cannot resolve {value}")


@pytest.mark.parametrize(("alias", "part"), [("deeplearning-master", "Master"), ("deeplearning-worker3", "Worker")])
def test_user_data_is_the_templates_byte_for_byte(cluster: Cluster, alias: str, part: str) -> None:
    template = json.loads((REPOSITORY / "cdk.out/ClusterStack.template.json").read_text())
    data = [
        resource["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::EC2::LaunchTemplate" and part in name
    ]
    assert len(data) == 1
    read = subprocess.run(
        ["base64", "-d"], input=cluster.on(alias, READ_USER_DATA).encode(), capture_output=True, check=True
    ).stdout
    assert read == References().resolve(data[0]).encode()
