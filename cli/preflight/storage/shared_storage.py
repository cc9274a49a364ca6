"""Check the setting ``shared_storage``: the nodes can mount an existing file system, or the deploy can create one."""

from collections.abc import Iterator
from typing import Final

from botocore.exceptions import ClientError

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.storage.efs import efs
from cli.preflight.storage.lustre import lustre
from cli.preflight.storage.ports import SUBJECT
from cli.preflight.target import PreflightTarget
from stacks.settings.storage import EFS, EFS_PRICE, NO_SHARED_STORAGE

_NOT_FOUND: Final = ("FileSystemNotFound", "BadRequest")


def check_shared_storage(target: PreflightTarget) -> Iterator[Finding]:
    """Check the file system that the setting names: its state, its policy, its network and its security groups."""
    setting = target.props.shared_storage
    kind, _, file_system = setting.partition(":")
    if setting == NO_SHARED_STORAGE:
        yield ok(SUBJECT, "none")
    elif setting == EFS:
        yield ok(SUBJECT, f"the cluster makes its own, which cdk destroy keeps: {EFS_PRICE}")
    else:
        check = efs if kind == EFS else lustre
        try:
            findings = [*check(target, file_system)]
        except ClientError as error:
            if error.response["Error"]["Code"] not in _NOT_FOUND:
                raise
            findings = [
                problem(SUBJECT, f"no file system {file_system} in {target.region}", f"choose another, or {EFS}")
            ]
        yield from findings or [ok(SUBJECT, f"the nodes can mount {file_system}")]
