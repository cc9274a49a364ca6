"""Measure the time until a replacement is a member on every node.

A round measures the seconds from the first line of the replacement's user data until the last node's hosts file is
right, minus the time of the same user data on a first boot in the same run: the rest is ours. Workers and masters are
killed in turn; ``rejoin_worker`` and ``rejoin_master`` are the medians of the rounds.
Run by ``make bench B=rejoin``, on the local AWS.
"""

import statistics
import sys

from benchmarks.harness.cluster import (
    AGREEMENT_TIMEOUT_S,
    observer,
    replacement,
    run_in_local_aws,
    user_data_began,
    user_data_took,
    user_with_cluster,
)
from bootstrap.contract import HOSTS_FILE
from local.chaos.membership_check import Observation
from local.faults import Faults
from local.run.user import User

NODES = 3
ROUNDS = 3
KINDS = {"worker": 2, "master": 1}
"""Node indexes to kill, by node type."""


def measure() -> None:
    with user_with_cluster(nodes=NODES) as user:
        before = observer(user).wait_for_agreement(AGREEMENT_TIMEOUT_S)
        first_boot = {
            kind: user_data_took(Faults.current().node(before.instances[node_index]))
            for kind, node_index in KINDS.items()
        }
        figures: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS):
            for kind, node_index in KINDS.items():
                seconds, before = rejoin(user, before, node_index)
                figures[kind].append(seconds - first_boot[kind])
    for kind, found in figures.items():
        rounds = ", ".join(f"{seconds:.1f}" for seconds in found)
        print(f"{kind}: {rounds} s; user data of a first boot {first_boot[kind]:.1f} s", file=sys.stderr)
        print(f"rejoin_{kind} {statistics.median(found):.1f} s")


def rejoin(user: User, before: Observation, node_index: int) -> tuple[float, Observation]:
    """Kill the node with an index; return the seconds until every node's hosts file contains its replacement."""
    faults = Faults.current()
    faults.kill(before.instances[node_index])
    after = replacement(user, before, node_index)
    written = [faults.node(instance_id).path(HOSTS_FILE).stat().st_mtime for instance_id in after.instances.values()]
    return max(written) - user_data_began(faults.node(after.instances[node_index])), after


if __name__ == "__main__":
    sys.exit(run_in_local_aws("benchmarks.cluster.rejoin", measure))
