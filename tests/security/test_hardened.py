"""Create a hardened stack: every part that stores data uses the user's key, and no role has an inline policy.

tests/e2e/private destroys one.
"""

from tests.local.control_plane.harness import Aws
from tests.security.user_resources import KMS_KEY, Deploy

NAME = "hardened"
HARDENED = {"hardened": True, "private": True, "flow_logs": True, "shared_storage": "none", "role_name_prefix": "team-"}


def test_hardened_stack_keeps_everything_under_the_users_key(aws: Aws, deploy: Deploy) -> None:
    iam, logs, table = aws.client("iam"), aws.client("logs"), aws.client("dynamodb")
    made = deploy(NAME, **HARDENED)
    made.complete()
    roles = [role["RoleName"] for role in iam.list_roles()["Roles"] if role["RoleName"].startswith(f"team-{NAME}-")]
    assert len(roles) == 3
    assert [iam.list_role_policies(RoleName=role)["PolicyNames"] for role in roles] == [[]] * 3
    [name] = [table_name for table_name in table.list_tables()["TableNames"] if table_name.startswith(f"{NAME}-")]
    assert table.describe_table(TableName=name)["Table"]["SSEDescription"]["KMSMasterKeyArn"] == KMS_KEY
    backups = table.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    groups = logs.describe_log_groups(logGroupNamePrefix=f"{NAME}-")["logGroups"]
    assert [group["kmsKeyId"] for group in groups] == [KMS_KEY] * 2
    [flow_log] = aws.client("ec2").describe_flow_logs()["FlowLogs"]
    [vpc] = aws.client("ec2").describe_vpcs(VpcIds=[flow_log["ResourceId"]])["Vpcs"]
    assert {"Key": "Name", "Value": NAME} in vpc["Tags"]
    assert (flow_log["TrafficType"], flow_log["FlowLogStatus"]) == ("ALL", "ACTIVE")
    assert flow_log["LogDestination"].rpartition(":")[2] in [group["logGroupName"] for group in groups]
    assert flow_log["DeliverLogsPermissionArn"].rpartition("/")[2] in roles
