"""Test that a node's user data is that of the synthesized template, with references resolved."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.support.deployed_cluster import DeployedCluster
from tests.e2e.support.template_references import References

REPOSITORY = Path(__file__).parents[3]
READ_USER_DATA = """
token=$(curl -sS -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)
curl -sS -H "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest/user-data | base64
"""


@pytest.mark.parametrize(("alias", "part"), [("deeplearning-master", "Master"), ("deeplearning-worker3", "Worker")])
def test_user_data_is_the_templates_byte_for_byte(cluster: DeployedCluster, alias: str, part: str) -> None:
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
