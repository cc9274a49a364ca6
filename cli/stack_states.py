"""Explain the states in which CloudFormation leaves a stack after a failure, each with the next step."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Explanation(NamedTuple):
    """A state's meaning for the user, and the next step."""

    meaning: str
    step: str
    """Step with the placeholders name (the cluster's) and region."""


_WHY: Final = "dlcluster why --region {region} --cluster {name}"
# The steps name the CDK's commands, because many users may use only the roles of cdk bootstrap. What each state
# accepts: "Stack status codes", "Choose how to handle failures" and RollbackStack in AWS's documentation, and
# aws-cdk's rollback(), which cannot continue a failed rollback of a creation.
EXPLANATIONS: Final[Mapping[str, Explanation]] = {
    "REVIEW_IN_PROGRESS": Explanation("nothing was created yet", "cdk deploy continues it, cdk destroy removes it"),
    "CREATE_FAILED": Explanation(
        "the first deploy failed and was not undone, so what it created may cost money",
        # Not cdk rollback, which would delete the bucket with what nodes wrote: docs/decisions/036.
        f"{_WHY} explains it; cdk deploy --no-rollback goes on with it, cdk destroy removes it",
    ),
    "ROLLBACK_IN_PROGRESS": Explanation("the first deploy failed and is being undone", f"{_WHY} explains it"),
    "ROLLBACK_COMPLETE": Explanation(
        "the first deploy failed and was undone, so there is no cluster and no node runs",
        f"{_WHY} explains it; cdk deploy tries again, cdk destroy removes the empty stack",
    ),
    "ROLLBACK_FAILED": Explanation(
        "the first deploy failed and was undone only in part, so what is left may cost money",
        f"{_WHY} names what is in the way; remove that, then cdk deploy deletes the stack and tries again, "
        "cdk destroy only deletes it",
    ),
    "UPDATE_FAILED": Explanation(
        "the last deploy failed half-way and was not undone",
        f"{_WHY} explains it; cdk deploy --no-rollback goes on with it, cdk rollback returns to the former settings",
    ),
    "UPDATE_ROLLBACK_IN_PROGRESS": Explanation("the last deploy failed and is being undone", f"{_WHY} explains it"),
    "UPDATE_ROLLBACK_COMPLETE": Explanation(
        "the last deploy failed and was undone, so the cluster has its former settings", f"{_WHY} explains it"
    ),
    "UPDATE_ROLLBACK_FAILED": Explanation(
        "the last deploy failed and was undone only in part",
        f"{_WHY} names what is in the way; remove that, then cdk rollback",
    ),
    "DELETE_FAILED": Explanation(
        "the deletion stopped half-way, so what is left may cost money",
        f"{_WHY} names what is in the way; remove that, then cdk destroy",
    ),
}
"""States that a newcomer does not expect of a cluster."""
BLOCKED: Final = frozenset({"CREATE_FAILED", "UPDATE_FAILED", "UPDATE_ROLLBACK_FAILED", "DELETE_FAILED"})
"""States that another step must end before a plain `cdk deploy`."""


def next_step(status: str, *, name: str, region: str) -> str:
    """Return the next step for the stack of a cluster."""
    return EXPLANATIONS[status].step.format(name=name, region=region)


def explain(status: str, *, name: str, region: str) -> str | None:
    """Return what a state means and the next step; None for a state that needs neither."""
    if status not in EXPLANATIONS:
        return None
    return f"{EXPLANATIONS[status].meaning}; {next_step(status, name=name, region=region)}"
