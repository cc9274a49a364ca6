"""Abuse each role's access to the user's KMS key: none directly, and through two services only what they need."""

from stacks.nodes.key_access import KEY_ACTIONS
from tests.local.control_plane.harness import REGION
from tests.security.cluster import BOTH, Node, abuses, refused
from tests.security.user_resources import KMS_KEY


@abuses(
    BOTH,
    *(
        f"{action} on kms:{KMS_KEY.rpartition(':')[2]}, kms:ViaService {service}.{REGION}.amazonaws.com"
        for service, actions in KEY_ACTIONS.items()
        for action in actions
    ),
)
def test_node_uses_the_key_through_the_table_and_the_bucket_alone(node: Node) -> None:
    kms, s3, table = node.client("kms"), node.client("s3"), node.client("dynamodb")
    refused(kms.decrypt, CiphertextBlob=b"x", KeyId=KMS_KEY)
    refused(kms.generate_data_key, KeyId=KMS_KEY, KeySpec="AES_256")
    refused(kms.create_grant, KeyId=KMS_KEY, GranteePrincipal=node.role["Arn"], Operations=["Decrypt"])
    refused(kms.schedule_key_deletion, KeyId=KMS_KEY)
    bucket = node.cluster.names["BUCKET"]
    s3.put_object(Bucket=bucket, Key=f"{node.type}/own", Body=b"mine")
    assert s3.get_object(Bucket=bucket, Key=f"{node.type}/own")["Body"].read() == b"mine"
    table.put_item(TableName=node.cluster.names["TABLE"], Item={"id": {"S": node.record_id()}})
