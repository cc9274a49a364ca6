"""Test the calls to IAM that the data plane makes for its nodes."""

import json

import boto3
import pytest

from local.data_plane.account import AccountReader
from tests.local.control_plane.harness import REGION, Aws

TRUST = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}


@pytest.fixture
def credentials(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> AccountReader:
    variables = {"AWS_ENDPOINT_URL": aws.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return AccountReader(boto3.Session(region_name=REGION))


def test_instance_has_the_role_of_its_profile(aws: Aws, credentials: AccountReader) -> None:
    iam = aws.client("iam")
    arn = iam.create_instance_profile(InstanceProfileName="node")["InstanceProfile"]["Arn"]
    assert credentials.role(arn) is None
    made = iam.create_role(RoleName="trainer", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    iam.add_role_to_instance_profile(InstanceProfileName="node", RoleName="trainer")
    role = credentials.role(arn)
    assert role is not None
    assert (role["RoleName"], role["Arn"]) == ("trainer", made)


def test_instance_without_a_profile_has_no_role(credentials: AccountReader) -> None:
    assert credentials.role(None) is None
