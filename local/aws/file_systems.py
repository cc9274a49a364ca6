"""Give file systems of templates the policy, which moto leaves out ("AWS::EFS::FileSystem", FileSystemPolicy)."""

import json
from typing import Any

from moto.efs.models import EFSBackend, FileSystem, efs_backends

from local.aws.moto_patching import wrap


def install() -> None:
    """Patch moto: apply the policies."""
    wrap(FileSystem, "create_from_cloudformation_json", _create)


def _create(
    original: Any, name: str, definition: dict[str, Any], account: str, region: str, **named: Any
) -> FileSystem:
    made: FileSystem = original(name, definition, account, region, **named)
    if policy := definition["Properties"].get("FileSystemPolicy"):
        backend: EFSBackend = efs_backends[account][region]
        backend.put_file_system_policy(
            made.file_system_id, json.dumps(policy), bypass_policy_lockout_safety_check=False
        )
    return made
