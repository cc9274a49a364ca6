"""Test the IAM policy of a cluster's users: what it allows, what its command prints, and what the page shows."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cli.aws.clusters import Cluster
from cli.errors import EXIT_NO_CLUSTER
from cli.main import main
from cli.ssh.user_policy import AwsScope, user_policy
from tests.cli.moto_cluster import Deploy, MotoCluster, error_line

PAGE = Path(__file__).parents[3] / "docs/use/log-in.md"
CLUSTER = Cluster(name="demo", stack_name="demo", table="t-1", login_user="ubuntu", networks_text="", is_private=True)


@pytest.fixture
def moto_cluster(deploy: Deploy) -> MotoCluster:
    return deploy(is_private=True)


def test_policy_reaches_this_clusters_nodes_over_ssh_alone() -> None:
    policy = user_policy(CLUSTER, AwsScope(partition="aws", region="eu-west-1", account="1"))
    checked = {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
    starts = [statement for statement in policy["Statement"] if "ssm:StartSession" in statement["Action"]]
    assert [(statement["Resource"], statement["Condition"]) for statement in starts] == [
        (
            "arn:aws:ec2:eu-west-1:1:instance/*",
            {"StringEquals": {"ssm:resourceTag/deeplearning:cluster": "demo"}, **checked},
        ),
        ("arn:aws:ssm:eu-west-1::document/AWS-StartSSHSession", checked),
    ]
    own = [statement for statement in policy["Statement"] if "ssm:TerminateSession" in statement["Action"]]
    assert [statement["Resource"] for statement in own] == ["arn:aws:ssm:eu-west-1:1:session/${aws:userid}-*"]
    assert not any("*" in action for statement in policy["Statement"] for action in statement["Action"])


def test_user_policy_allows_reading_the_table() -> None:
    scope = AwsScope(partition="aws", region="eu-west-1", account="1")
    assert "kms:" not in str(user_policy(CLUSTER, scope))
    key = "arn:aws:kms:eu-west-1:1:key/1"
    [found] = [
        s for s in user_policy(replace(CLUSTER, kms_key=key), scope)["Statement"] if "kms:Decrypt" in s["Action"]
    ]
    assert (found["Resource"], found["Condition"]) == (
        key,
        {"StringEquals": {"kms:ViaService": "dynamodb.eu-west-1.amazonaws.com"}},
    )


def test_policy_before_the_deploy_says_that_it_needs_the_cluster(
    aws: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy"]) == EXIT_NO_CLUSTER
    printed = error_line(capsys)
    assert printed.startswith("no cluster in eu-west-1 (")
    assert printed.endswith("; the policy names the table that a deploy creates")


def test_policy_command_names_account_table_and_cluster(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy"]) == 0
    printed = capsys.readouterr().out
    assert f'"arn:aws:dynamodb:eu-west-1:123456789012:table/{moto_cluster.table}"' in printed
    assert '"ssm:resourceTag/deeplearning:cluster": "demo"' in printed


def test_without_private_the_policy_starts_no_session(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy()
    assert main(["policy"]) == 0
    assert "ssm" not in capsys.readouterr().out


def test_documentation_shows_a_private_clusters_policy() -> None:
    [shown] = re.findall(r"```json\n({\n  \"Version\".*?)```", PAGE.read_text(), re.DOTALL)
    cluster = replace(CLUSTER, name="deeplearning", stack_name="deeplearning", table="TABLE")
    scope = AwsScope(partition="aws", region="us-east-1", account="123456789012")
    assert json.loads(shown) == user_policy(cluster, scope)
