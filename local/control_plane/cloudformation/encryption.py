"""Apply a template's keys and point-in-time recovery; moto does neither."""

from typing import Any

from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.table import Table
from moto.logs.models import LogGroup

from local.control_plane.moto_patching import wrap


def install() -> None:
    """Patch moto: extend its tables and log groups."""
    wrap(Table, "create_from_cloudformation_json", _create_table)
    wrap(LogGroup, "create_from_cloudformation_json", _create_log_group)


def _create_table(
    original: Any, name: str, definition: dict[str, Any], account_id: str, region_name: str, **kwargs: Any
) -> Table:
    table: Table = original(name, definition, account_id, region_name, **kwargs)
    properties = definition["Properties"]
    if table.sse_specification is not None:
        # moto reads the API's name instead of CloudFormation's.
        table.sse_specification["Enabled"] = properties["SSESpecification"]["SSEEnabled"]
    if recovery := properties.get("PointInTimeRecoverySpecification"):
        dynamodb_backends[account_id][region_name].update_continuous_backups(table.name, recovery)
    return table


def _create_log_group(
    original: Any, name: str, definition: dict[str, Any], account_id: str, region_name: str, **kwargs: Any
) -> LogGroup:
    group: LogGroup = original(name, definition, account_id, region_name, **kwargs)
    group.kms_key_id = definition["Properties"].get("KmsKeyId")
    return group
