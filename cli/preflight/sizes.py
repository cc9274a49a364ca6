"""Report how many nodes a deploy starts and terminates, and whether the cluster is paused."""

from collections.abc import Iterator

from bootstrap.contract import WORKER
from cli.aws.deployed_template import read_template
from cli.node_groups.changes import SizeChange, describe
from cli.node_groups.groups import read_groups, sizes_by_node_type
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget, is_deployed


def check_sizes(target: PreflightTarget) -> Iterator[Finding]:
    """Report the change of the groups' sizes; an undeployed cluster has none."""
    if not target.props.has_zone:
        yield ok("sizes", "cdk deploy starts no node: dlcluster up does, in a zone with capacity for all")
        return
    if not is_deployed(target):
        return
    name = target.props.cluster_name
    change = SizeChange(
        current=sizes_by_node_type(read_groups(target.clients.autoscaling, name)),
        old_template=read_template(target.clients.cloudformation, name).sizes(name),
        new_template=target.props.initial_sizes,
    )
    if target.props.uses_capacity_block:
        outcome = (
            f"the deploy terminates {change.terminated} nodes"
            if change.terminated
            else "the deploy starts and terminates no node"
        )
        yield ok("sizes", f"{outcome}; the nodes start and end with the Capacity Block")
        return
    message = "; ".join(describe(change))
    if change.is_refused:
        yield problem("sizes", message, "dlcluster resume")
    elif change.leaves_no_master:
        yield warning("sizes", message, "")
    elif change.terminated:
        before = change.old_template[WORKER].desired_capacity
        yield warning("sizes", message, f'to keep them, put "worker_count": {before} into cdk.json')
    else:
        yield ok("sizes", message)
