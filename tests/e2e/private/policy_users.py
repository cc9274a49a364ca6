"""Create users whose policies allow sessions with this cluster or with another one."""

from collections.abc import Iterator
from contextlib import contextmanager

from local.faults.clients import client
from tests.e2e.private.existing_vpc import NAME, PrivateCluster


@contextmanager
def users_with_policies(cluster: PrivateCluster) -> Iterator[dict[str, dict[str, str]]]:
    """Create a user with the policy that dlcluster prints, and one with that of another cluster; return their keys."""
    iam, policy = client("iam"), cluster.in_checkout("dlcluster", "policy", "--cluster", NAME)
    tag = f'"ssm:resourceTag/deeplearning:cluster": "{NAME}"'
    assert policy.count(tag) == 1
    keys = {}
    for name, document in (("own", policy), ("other", policy.replace(tag, tag.replace(NAME, "other")))):
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="cluster", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        keys[name] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    yield keys
    for name, key in keys.items():
        iam.delete_access_key(UserName=name, AccessKeyId=key["AWS_ACCESS_KEY_ID"])
        iam.delete_user_policy(UserName=name, PolicyName="cluster")
        iam.delete_user(UserName=name)
