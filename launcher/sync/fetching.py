"""Have all nodes fetch a prefix of a bucket, and show how far they are."""

from collections.abc import Sequence
from functools import partial

from launcher.output.sink import Sink
from launcher.sync.all_nodes import Deadline, run_on_all
from launcher.sync.progress import FetchProgress, show_progress
from launcher.sync.request import Fetch
from launcher.transport.connection import RunnerConnection
from launcher.transport.messages import request_line
from launcher.transport.rpc import receive_answer

NODE_MARGIN_S = 2.0
"""Seconds by which a node's deadline comes before the launcher's."""


async def fetch_on_all(
    connections: Sequence[RunnerConnection], fetch: Fetch, *, deadline: Deadline, stderr: Sink
) -> None:
    """Have every node fetch what it lacks, or its share of it; raise one LaunchError for the nodes that failed."""
    progress = FetchProgress(nodes=len(connections))
    indexes = {connection: index for index, connection in enumerate(connections)}

    async def fetch_on_one(connection: RunnerConnection) -> None:
        index = indexes[connection]
        shard = [index, len(connections)] if fetch.is_sharded else None
        request = partial(request_line, "fetch", source=fetch.source, directory=fetch.directory, shard=shard)
        # The node gives up first, because it knows what it waits for.
        await connection.send(request(timeout_s=max(0.9 * deadline.left, deadline.left - NODE_MARGIN_S)))
        while "progress" in (answer := await receive_answer(connection)):
            progress.update(index, answer["progress"])
        progress.update(index, answer["fetched"])

    async with show_progress(progress, stderr):
        await run_on_all(connections, fetch_on_one, deadline=deadline)
    if progress.files:
        await stderr.send(progress.summary().encode())
