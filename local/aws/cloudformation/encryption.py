"""Apply a template's keys and point-in-time recovery, and delete managed policies; moto does none of this."""

from typing import Any

from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.table import Table
from moto.iam.models import Group, ManagedPolicy, Role, User
from moto.logs.models import LogGroup

from local.aws.moto_patching import add, wrap


def install() -> None:
    """Patch moto: extend its tables, log groups and policies."""
    wrap(Table, "create_from_cloudformation_json", _create_table)
    wrap(LogGroup, "create_from_cloudformation_json", _create_log_group)
    add(ManagedPolicy, "delete", _delete_policy)


def _create_table(
    original: Any, name: str, definition: dict[str, Any], account_id: str, region_name: str, **given: Any
) -> Table:
    table: Table = original(name, definition, account_id, region_name, **given)
    properties = definition["Properties"]
    if table.sse_specification is not None:
        # moto reads the API's name instead of CloudFormation's.
        table.sse_specification["Enabled"] = properties["SSESpecification"]["SSEEnabled"]
    if recovery := properties.get("PointInTimeRecoverySpecification"):
        dynamodb_backends[account_id][region_name].update_continuous_backups(table.name, recovery)
    return table


def _create_log_group(
    original: Any, name: str, definition: dict[str, Any], account_id: str, region_name: str, **given: Any
) -> LogGroup:
    group: LogGroup = original(name, definition, account_id, region_name, **given)
    group.kms_key_id = definition["Properties"].get("KmsKeyId")
    return group


def _delete_policy(policy: ManagedPolicy, _account_id: str, _region_name: str) -> None:
    """Detach the policy from all its users and delete it, like CloudFormation."""
    backend = policy.backend
    owners: list[Role | Group | User] = [*backend.roles.values(), *backend.groups.values(), *backend.users.values()]
    for owner in owners:
        if policy.arn in owner.managed_policies:
            policy.detach_from(owner)
    backend.delete_policy(policy.arn)
