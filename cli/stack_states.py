"""Explain the states in which CloudFormation leaves a stack after a failure, each with the next step."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Explanation(NamedTuple):
    """A state's meaning for the user, and the next step."""

    meaning: str
    step: str
    """Step with the placeholders name (the cluster's), stack and region."""


_WHY: Final = "dlcluster why --region {region} --cluster {name}"
_STACK: Final = "--region {region} --stack-name {stack}"
_DELETE: Final = f"aws cloudformation delete-stack {_STACK}"
EXPLANATIONS: Final[Mapping[str, Explanation]] = {
    "REVIEW_IN_PROGRESS": Explanation("nothing was created yet", "cdk deploy continues it, cdk destroy removes it"),
    "CREATE_FAILED": Explanation(
        "the first deploy failed, and what it created may cost money", f"{_WHY} explains it; then {_DELETE}"
    ),
    "ROLLBACK_IN_PROGRESS": Explanation("the first deploy failed and is being undone", f"{_WHY} explains it"),
    "ROLLBACK_COMPLETE": Explanation(
        "the first deploy failed and was undone, so there is no cluster and no node runs",
        f"{_WHY} explains it; cdk deploy tries again, cdk destroy removes the empty stack",
    ),
    "ROLLBACK_FAILED": Explanation(
        "the first deploy failed and was undone only in part, so what is left may cost money",
        f"{_WHY} explains it; then {_DELETE}",
    ),
    "UPDATE_FAILED": Explanation(
        "the last deploy failed half-way", f"{_WHY} explains it; then aws cloudformation rollback-stack {_STACK}"
    ),
    "UPDATE_ROLLBACK_IN_PROGRESS": Explanation("the last deploy failed and is being undone", f"{_WHY} explains it"),
    "UPDATE_ROLLBACK_COMPLETE": Explanation(
        "the last deploy failed and was undone, so the cluster has its former settings", f"{_WHY} explains it"
    ),
    "UPDATE_ROLLBACK_FAILED": Explanation(
        "the last deploy failed and was undone only in part",
        f"{_WHY} explains it; then aws cloudformation continue-update-rollback {_STACK}",
    ),
    "DELETE_FAILED": Explanation(
        "the deletion stopped half-way, so what is left may cost money",
        f"{_WHY} names what is in the way; remove that, then {_DELETE}",
    ),
}
"""States that a newcomer does not expect of a cluster."""
BLOCKED: Final = frozenset(state for state in EXPLANATIONS if state.endswith("_FAILED"))
"""States in which CloudFormation accepts no change of the stack."""


def next_step(status: str, *, name: str, stack: str, region: str) -> str:
    """Return the next step for a stack; a cluster in a user's own app has another name than its stack."""
    return EXPLANATIONS[status].step.format(name=name, stack=stack, region=region)


def explain(status: str, *, name: str, stack: str, region: str) -> str | None:
    """Return what a state means and the next step; None for a state that needs neither."""
    if status not in EXPLANATIONS:
        return None
    return f"{EXPLANATIONS[status].meaning}; {next_step(status, name=name, stack=stack, region=region)}"
