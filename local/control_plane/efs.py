"""Give a template's file systems of EFS their policy, and update them, which moto cannot ("AWS::EFS::FileSystem").

A policy with anything that mount targets could not evaluate is refused.
"""

import json
from typing import Any, Final

from moto.cloudformation.exceptions import ValidationError
from moto.efs.exceptions import EFSError
from moto.efs.models import EFSBackend, FileSystem, efs_backends

from local.control_plane.moto_patching import wrap
from local.policy_evaluation.conditions import PolicyError
from local.storage.file_system_policy import parse_policy

_TAGS: Final = "FileSystemTags"
_POLICY: Final = "FileSystemPolicy"


class _InvalidPolicyError(EFSError):
    code = 400

    def __init__(self, message: str) -> None:
        super().__init__("InvalidPolicyException", message)


def install() -> None:
    """Patch moto: apply the policies, and check them."""
    wrap(FileSystem, "create_from_cloudformation_json", _create)
    wrap(EFSBackend, "put_file_system_policy", _check_policy)


def _create(
    original: Any, name: str, definition: dict[str, Any], account: str, region: str, **kwargs: Any
) -> FileSystem:
    file_system: FileSystem = original(name, definition, account, region, **kwargs)
    _put_policy(efs_backends[account][region], file_system, definition["Properties"])
    return file_system


def check_update(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise ValidationError if other properties than tags and policy change, such as the key."""
    changed = sorted(name for name in {*old, *new} - {_TAGS, _POLICY} if old.get(name) != new.get(name))
    if changed:
        raise ValidationError(message=f"the local AWS cannot change {', '.join(changed)} of a file system")


def update(file_system: FileSystem, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Update tags and policy in place."""
    backend: EFSBackend = file_system._context
    backend.untag_resource(file_system.file_system_id, [tag["Key"] for tag in old.get(_TAGS, [])])
    backend.tag_resource(file_system.file_system_id, {tag["Key"]: tag["Value"] for tag in new.get(_TAGS, [])})
    _put_policy(backend, file_system, new)


def _put_policy(backend: EFSBackend, file_system: FileSystem, properties: dict[str, Any]) -> None:
    if policy := properties.get(_POLICY):
        backend.put_file_system_policy(
            file_system.file_system_id, json.dumps(policy), bypass_policy_lockout_safety_check=False
        )


def _check_policy(original: Any, backend: EFSBackend, file_system_id: str, policy: str, **kwargs: Any) -> None:
    try:
        parse_policy(json.loads(policy))
    except (PolicyError, ValueError) as error:
        raise _InvalidPolicyError(f"invalid policy: {error}") from error
    original(backend, file_system_id, policy, **kwargs)
