"""Check that no stack of the cluster's name is in the way."""

from collections.abc import Iterator, Mapping
from typing import Final

from bootstrap.contract import CLUSTER_NAME_OUTPUT
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget, find_current_stack

_DELETE: Final = "aws cloudformation delete-stack --region {region} --stack-name {name}"
_WAYS_OUT: Final[Mapping[str, str]] = {
    "ROLLBACK_FAILED": _DELETE,
    "DELETE_FAILED": f"dlcluster why names what is in the way; remove that, then {_DELETE}",
    "CREATE_FAILED": _DELETE,
    "UPDATE_FAILED": "aws cloudformation rollback-stack --region {region} --stack-name {name}",
    "UPDATE_ROLLBACK_FAILED": "aws cloudformation continue-update-rollback --region {region} --stack-name {name}",
}


def stack(target: PreflightTarget) -> Iterator[Finding]:
    """Report the stack of the cluster's name, and whether a deploy can use it."""
    name, found = target.props.cluster_name, find_current_stack(target)
    if found is None:
        yield ok("stack", f"there is no stack {name} yet")
        return
    status = found["StackStatus"]
    now = f"stack {name} is {status}"
    names = {out.get("OutputKey") for out in found.get("Outputs", [])}
    if status == "REVIEW_IN_PROGRESS":
        yield ok("stack", f"{now}: nothing was created yet")
    elif status == "ROLLBACK_COMPLETE":
        # The CDK's command line removes such a stack before it deploys (aws-cdk, deploy-stack).
        yield warning("stack", f"{now}, its deploy failed", "see dlcluster why; cdk deploy removes it first")
    elif status in _WAYS_OUT:
        yield problem("stack", now, _WAYS_OUT[status].format(region=target.region, name=name))
    elif status.endswith("_IN_PROGRESS"):
        yield problem("stack", now, "wait until it has finished")
    elif CLUSTER_NAME_OUTPUT not in names:
        yield problem("stack", f"stack {name} exists but is not a cluster", "choose another cluster_name")
    else:
        yield ok("stack", f"{now}: cdk deploy changes it")
