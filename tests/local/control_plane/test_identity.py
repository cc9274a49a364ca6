"""Test a node's identity when it uses its role; the metadata service and the agent rely on it."""

from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import attribute, role


def test_caller_of_a_node_is_role_id_and_instance_id(aws: Aws, stacks: Stacks) -> None:
    outputs = {"RoleId": {"Value": attribute("RoleId", "Role")}, "Arn": {"Value": attribute("Arn", "Role")}}
    stacks.create({"Resources": role(), "Outputs": outputs})
    made = stacks.outputs()
    sts = aws.client("sts")
    keys = sts.assume_role(RoleArn=made["Arn"], RoleSessionName="i-0123456789abcdef0")["Credentials"]
    node = aws.client(
        "sts",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    identity = node.get_caller_identity()
    name = stacks.physical_id("Role")
    assert identity["UserId"] == f"{made['RoleId']}:i-0123456789abcdef0"
    assert identity["Arn"] == f"arn:aws:sts::123456789012:assumed-role/{name}/i-0123456789abcdef0"
