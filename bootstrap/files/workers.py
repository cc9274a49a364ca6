"""Render the workers file, which DEEPLEARNING_WORKERS_PATH names.

Training scripts and ``launch`` read one host name per line, in index order, so that a node keeps its node_rank and data
shard when another is replaced. The number of nodes derives from the setting ``worker_count``, through the groups'
DesiredCapacity (stacks/nodes/node_group.py, bootstrap/cluster/discovery.py).
"""

from collections.abc import Iterable

from bootstrap.cluster.membership import Member
from bootstrap.contract import worker_host
from bootstrap.files.hosts import in_index_order


def workers_file(members: Iterable[Member]) -> str:
    """Render one host name per line, in index order; a master that trains is first, as ``deeplearning-worker1``."""
    return "".join(f"{worker_host(member.node_index)}\n" for member in in_index_order(members))
