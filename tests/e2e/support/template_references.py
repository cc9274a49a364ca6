"""Resolve the references of the deployed template."""

from typing import Any

import boto3

from tests.e2e.support.deployed_cluster import STACK


class References:
    """Resolves references to the values that CloudFormation gives them, from the AWS APIs."""

    def __init__(self) -> None:
        cloudformation = boto3.client("cloudformation")
        self._stack_id = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["StackId"]
        resources = cloudformation.describe_stack_resources(StackName=STACK)["StackResources"]
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
            addresses = boto3.client("ec2").describe_addresses(PublicIps=[self._physical[name]])["Addresses"]
            return str(addresses[0]["AllocationId"])
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
