"""Give file systems of templates the policy, which moto leaves out ("AWS::EFS::FileSystem", FileSystemPolicy).

A policy with anything that mount targets could not evaluate is refused.
"""

import json
from typing import Any

from moto.efs.exceptions import EFSError
from moto.efs.models import EFSBackend, FileSystem, efs_backends

from local.aws.moto_patching import wrap
from local.iam.conditions import PolicyError
from local.storage.file_system_policy import parse_policy


class _InvalidPolicyError(EFSError):
    code = 400

    def __init__(self, message: str) -> None:
        super().__init__("InvalidPolicyException", message)


def install() -> None:
    """Patch moto: apply the policies, and check them."""
    wrap(FileSystem, "create_from_cloudformation_json", _create)
    wrap(EFSBackend, "put_file_system_policy", _put_policy)


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


def _put_policy(original: Any, backend: EFSBackend, file_system_id: str, policy: str, **named: Any) -> None:
    try:
        parse_policy(json.loads(policy))
    except (PolicyError, ValueError) as error:
        raise _InvalidPolicyError(f"invalid policy: {error}") from error
    original(backend, file_system_id, policy, **named)
