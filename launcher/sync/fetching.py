"""Have all nodes fetch a prefix of a bucket, and show how far they are."""

from collections.abc import Sequence
from functools import partial

from launcher.output.prefixes import Sink
from launcher.sync.messages import request_line
from launcher.sync.progress import FetchProgress, show_progress
from launcher.sync.request import Fetch
from launcher.sync.rpc import Deadline, receive_answer, run_on_all
from launcher.transport.connection import RunnerConnection

EARLIER_S = 2.0
"""Seconds by which a node's deadline comes before the launcher's."""


async def fetch_on_all(
    connections: Sequence[RunnerConnection], wanted: Fetch, *, deadline: Deadline, stderr: Sink
) -> None:
    """Have every node fetch what it lacks, or its share of it; raise one LaunchError for the nodes that failed."""
    progress = FetchProgress(nodes=len(connections))
    places = {connection: index for index, connection in enumerate(connections)}

    async def fetch(connection: RunnerConnection) -> None:
        place = places[connection]
        shard = [place, len(connections)] if wanted.is_sharded else None
        request = partial(request_line, "fetch", source=wanted.source, directory=wanted.directory, shard=shard)
        # The node gives up first, because it knows what it waits for.
        await connection.send(request(deadline_s=max(0.9 * deadline.left, deadline.left - EARLIER_S)))
        while "progress" in (answer := await receive_answer(connection)):
            progress.update(place, answer["progress"])
        progress.update(place, answer["fetched"])

    async with show_progress(progress, stderr):
        await run_on_all(connections, fetch, deadline=deadline)
    if progress.files:
        await stderr.send(progress.summary().encode())
