"""Predict and describe what a deploy does to the sizes of a cluster's groups."""

from collections.abc import Iterator
from dataclasses import dataclass

from bootstrap.aws.group_sizes import ClusterSizes, size_after_update
from bootstrap.contract import MASTER, NODE_TYPES, WORKER
from cli.shared_options import invocation


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeChange:
    """The sizes before a deploy, and those in the templates before and after it."""

    current: ClusterSizes
    """Current sizes, which somebody may have changed since the last deploy."""
    old_template: ClusterSizes
    """Sizes in the deployed template."""
    new_template: ClusterSizes
    """Sizes in the template to deploy."""

    @property
    def after_deploy(self) -> ClusterSizes:
        """Return the sizes after the deploy."""
        return {
            node_type: size_after_update(
                self.current[node_type], old=self.old_template[node_type], new=self.new_template[node_type]
            )
            for node_type in NODE_TYPES
        }

    @property
    def is_paused(self) -> bool:
        """Return True if the cluster is paused before the deploy."""
        return all(size.is_paused for size in self.current.values())

    @property
    def is_refused(self) -> bool:
        """Return True if Auto Scaling refuses the sizes, so that the deploy fails and CloudFormation rolls back."""
        return not all(size.is_valid for size in self.after_deploy.values())

    @property
    def started(self) -> int:
        """Return the number of nodes that the deploy starts."""
        return sum(
            max(self.after_deploy[node_type].desired_capacity - self.current[node_type].desired_capacity, 0)
            for node_type in NODE_TYPES
        )

    @property
    def terminated(self) -> int:
        """Return the number of nodes that the deploy terminates."""
        return sum(
            max(self.current[node_type].desired_capacity - self.after_deploy[node_type].desired_capacity, 0)
            for node_type in NODE_TYPES
        )

    @property
    def leaves_no_master(self) -> bool:
        """Return True if the deploy leaves workers without a master, as a changed size does on a paused cluster."""
        return self.after_deploy[MASTER].desired_capacity == 0 < self.after_deploy[WORKER].desired_capacity


def describe(change: SizeChange) -> Iterator[str]:
    """Yield, line by line, what the deploy will do."""
    old, new = (sizes[WORKER].desired_capacity for sizes in (change.old_template, change.new_template))
    paused = "the cluster is paused: " if change.is_paused else ""
    if change.is_refused:
        yield (
            f"{paused}Auto Scaling will refuse the sizes (MinSize, DesiredCapacity and MaxSize do not fit together) "
            "and the deploy will be rolled back, which starts the nodes of the previous deploy: "
            f"{invocation()} resume first"
        )
        return
    if old == new:
        yield f"worker_count stays {new}"
    else:
        yield f"worker_count {old} -> {new}"
    if change.started:
        yield f"{paused}CloudFormation will start {_count(change.started)}"
    if change.terminated:
        yield f"CloudFormation will terminate the {_newest(change.terminated)}"
    if not change.started and not change.terminated:
        yield f"{paused}the deploy starts and terminates no node"
    if change.leaves_no_master:
        yield f"workers do nothing without a master: {invocation()} resume starts it"


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _newest(nodes: int) -> str:
    return "newest node" if nodes == 1 else f"{nodes} newest nodes"
