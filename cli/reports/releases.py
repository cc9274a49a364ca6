"""Compare the releases of this machine, the stack and the nodes: report a difference in one line, with advice."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from bootstrap.contract import VERSION
from cli.aws.nodes import ClusterNode
from cli.errors import ClusterError

MAX_NAMED: Final = 4
"""Largest number of nodes named in the line."""
REPLACE: Final = "dlcluster pause and resume replace the nodes"
"""Command that brings running nodes to the stack's release; a deploy leaves them unchanged."""


def release_lines(members: Sequence[ClusterNode], *, stack: str, here: str = VERSION) -> list[str]:
    """Return nothing if all have the same release, else one line; `stack` and a node's release may be unknown.

    Nodes that are about to end do not count.
    """
    differing: dict[str, list[str]] = {}
    for member in members:
        if member.release != stack and not member.draining:
            differing.setdefault(member.release, []).append(member.short_name)
    version = stack.partition(":")[0]
    if not differing and version == here:
        return []
    is_stack_behind = not stack or _is_newer(here, version)
    advice = ["cdk deploy brings the stack up to this one"] if is_stack_behind else []
    if not is_stack_behind and version != here:
        advice.append("update dlcluster on this machine")
    # After a deploy of another release, all running nodes are behind.
    if differing or is_stack_behind:
        advice.append(REPLACE)
    parts = [f"dlcluster {here}", f"stack {_shown(stack)}", *_nodes(differing)]
    return [f"releases differ: {', '.join(parts)}: {'; '.join(advice)}"]


def _nodes(differing: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"{', '.join(names) if len(names) <= MAX_NAMED else f'{len(names)} nodes'} {_shown(release)}"
        for release, names in differing.items()
    ]


def _shown(release: str) -> str:
    version, _, bundle = release.partition(":")
    return f"{version} ({bundle})" if release else "of an earlier release"


def _is_newer(one: str, other: str) -> bool:
    return _numbers(one) > _numbers(other)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"[0-9]{1,9}", version))


def check_secrets_are_known(members: Sequence[ClusterNode]) -> None:
    """Raise ClusterError if a node's release predates secrets; such a node does not even report its release."""
    if behind := [member.short_name for member in members if not member.release and not member.draining]:
        names = ", ".join(behind) if len(behind) <= MAX_NAMED else f"{len(behind)} nodes"
        raise ClusterError(f"--secret needs nodes of this release, and {names} run an earlier one: {REPLACE}")
