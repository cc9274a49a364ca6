"""Attach a team's own managed policy through policy_arns: nodes may do what it grants, and nothing beside it."""

import json

import pytest

from tests.local.control_plane.harness import Aws, policy
from tests.security.cluster import BOTH, RoleCluster, refused
from tests.security.user_resources import Deploy

MODELS = "team-models"
"""Bucket of the team that no other setting names."""
PARAMETER = "/team/tracking-server"


@pytest.fixture(scope="module")
def with_policy(aws: Aws, deploy: Deploy) -> RoleCluster:
    """Deploy a cluster whose settings name a customer-managed policy for one prefix and one parameter."""
    s3, ssm = aws.client("s3"), aws.client("ssm")
    s3.create_bucket(Bucket=MODELS)
    for key in ("shared/a", "private/a"):
        s3.put_object(Bucket=MODELS, Key=key, Body=b"stored")
    ssm.put_parameter(Name=PARAMETER, Value="stored", Type="String")
    document = policy(
        {"Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{MODELS}/shared/*"},
        {"Action": "ssm:GetParameter", "Resource": f"arn:aws:ssm:*:*:parameter{PARAMETER}"},
    )
    made = aws.client("iam").create_policy(PolicyName=MODELS, PolicyDocument=json.dumps(document))
    return deploy("with-policy", policy_arns=(made["Policy"]["Arn"],))


@pytest.mark.parametrize("node_type", BOTH)
def test_node_may_do_what_an_attached_policy_grants_and_no_more(with_policy: RoleCluster, node_type: str) -> None:
    node = with_policy.node(node_type)
    s3, ssm = node.client("s3"), node.client("ssm")
    refused(s3.get_object, Bucket=MODELS, Key="private/a")
    refused(s3.put_object, Bucket=MODELS, Key="shared/a", Body=b"mine")
    refused(ssm.put_parameter, Name=PARAMETER, Value="mine", Type="String", Overwrite=True)
    assert s3.get_object(Bucket=MODELS, Key="shared/a")["Body"].read() == b"stored"
    assert ssm.get_parameter(Name=PARAMETER)["Parameter"]["Value"] == "stored"


@pytest.mark.usefixtures("with_policy")
@pytest.mark.parametrize("node_type", BOTH)
def test_node_of_a_cluster_without_the_policy_is_refused(cluster: RoleCluster, node_type: str) -> None:
    node = cluster.node(node_type)
    refused(node.client("s3").get_object, Bucket=MODELS, Key="shared/a")
    refused(node.client("ssm").get_parameter, Name=PARAMETER)
