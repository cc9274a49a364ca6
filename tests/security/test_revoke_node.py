"""Test the command of docs/security.md that revokes one node's access."""

import re
from pathlib import Path

from tests.local.control_plane.harness import session_keys
from tests.security.cluster import Node, RoleCluster, refused

PAGE = Path(__file__).resolve().parents[2] / "docs/security.md"


def policy_of_the_page() -> str:
    (document,) = re.findall(r"--policy-document '(.*)'", PAGE.read_text())
    return str(document)


def test_revoked_node_is_excluded_while_the_others_continue(cluster: RoleCluster, worker: Node) -> None:
    iam, role = cluster.aws.client("iam"), worker.role
    other = session_keys(cluster.aws, role["Arn"], cluster.members(cluster.group("worker"))[-1])
    document = policy_of_the_page().replace("ROLE_ID", role["RoleId"]).replace("INSTANCE_ID", worker.instance_id)
    call = {"TableName": cluster.names["TABLE"], "Key": {"id": {"S": "membership"}}}
    iam.put_role_policy(RoleName=role["RoleName"], PolicyName="shut-out", PolicyDocument=document)
    try:
        refused(worker.client("dynamodb").get_item, **call)
        refused(worker.client("s3").list_objects_v2, Bucket=cluster.names["BUCKET"])
        cluster.aws.client("dynamodb", **other).get_item(**call)
    finally:
        iam.delete_role_policy(RoleName=role["RoleName"], PolicyName="shut-out")
    worker.client("dynamodb").get_item(**call)
