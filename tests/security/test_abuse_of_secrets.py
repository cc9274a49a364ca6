"""Abuse each role's access to the account's secrets: it reaches those that the settings name, and no others."""

import pytest

from tests.security.cluster import BOTH, Node, RoleCluster, abuses, refused
from tests.security.user_resources import SECRET_KEY

VALUE = "hidden-7f3a"


@pytest.fixture(scope="module", autouse=True)
def stored(cluster: RoleCluster) -> None:
    """Store the named secrets, under the user's own key, and their neighbors."""
    ssm, manager = cluster.aws.client("ssm"), cluster.aws.client("secretsmanager")
    for name in ("/team/wandb", "/team/wandb2", "/team/wandb/more"):
        ssm.put_parameter(Name=name, Value=VALUE, Type="SecureString", KeyId=SECRET_KEY)
    for name in ("team/hub", "team/hub-2"):
        manager.create_secret(Name=name, SecretString=VALUE, KmsKeyId=SECRET_KEY)
    ssm.put_parameter(Name="/team/other-key", Value=VALUE, Type="SecureString", KeyId=f"{SECRET_KEY}9")


@abuses(
    BOTH,
    "ssm:GetParameter on ssm:parameter/team/wandb",
    "ssm:GetParameter on ssm:parameter/team/other-key",
    "kms:Decrypt on kms:key/0123abcd, kms:ViaService ssm.us-east-1.amazonaws.com",
)
def test_node_reads_the_named_parameters_and_no_others(node: Node) -> None:
    ssm, kms = node.client("ssm"), node.client("kms")
    for name in ("/team/wandb2", "/team/wandb/more", "/team/none"):
        refused(ssm.get_parameter, Name=name, WithDecryption=True)
    refused(ssm.get_parameters_by_path, Path="/team", WithDecryption=True)
    refused(ssm.get_parameter_history, Name="/team/wandb", WithDecryption=True)
    refused(ssm.describe_parameters)
    refused(ssm.put_parameter, Name="/team/wandb", Value="mine", Type="String", Overwrite=True)
    refused(ssm.delete_parameter, Name="/team/wandb")
    refused(kms.decrypt, CiphertextBlob=b"x", KeyId=SECRET_KEY)
    refused(ssm.get_parameter, Name="/team/other-key", WithDecryption=True)
    assert ssm.get_parameter(Name="/team/other-key")["Parameter"]["Value"].startswith("kms:")  # still encrypted
    assert ssm.get_parameter(Name="/team/wandb", WithDecryption=True)["Parameter"]["Value"] == VALUE


@abuses(
    BOTH,
    "secretsmanager:GetSecretValue on secretsmanager:secret:team/hub-??????",
    "kms:Decrypt on kms:key/0123abcd, kms:ViaService secretsmanager.us-east-1.amazonaws.com",
)
def test_node_reads_the_named_secrets_and_no_others(node: Node) -> None:
    manager, kms = node.client("secretsmanager"), node.client("kms")
    for name in ("team/hub-2", "team/none"):
        refused(manager.get_secret_value, SecretId=name)
    refused(manager.list_secrets)
    refused(manager.describe_secret, SecretId="team/hub")
    refused(manager.put_secret_value, SecretId="team/hub", SecretString="mine")
    refused(manager.delete_secret, SecretId="team/hub")
    refused(kms.decrypt, CiphertextBlob=b"x", KeyId=SECRET_KEY)
    assert manager.get_secret_value(SecretId="team/hub")["SecretString"] == VALUE
