"""Kill ``dlcluster up`` at a moment: once it has printed a line, or has sent a call that the local AWS logs."""

import json
import os
import queue
import signal
import threading
import time
from pathlib import Path
from typing import IO, Final

from bootstrap.contract import MASTER, WORKER, group_name
from cli.cluster_lock import UP_ID
from tests.e2e.support.deployed_cluster import STACK
from tests.e2e.support.laptop import COMMAND_S, Laptop

_POLL_S: Final = 0.02
LOCKS, UNLOCKS = (f"{action} {UP_ID}" for action in ("PutItem", "DeleteItem"))
DEPLOYS: Final = "ExecuteChangeSet"
BEGINS_ATTEMPT: Final = "CreateOrUpdateTags"
READS_GROUPS: Final = "DescribeAutoScalingGroups"
LAUNCHES_WORKERS, LAUNCHES_MASTER = (
    f"LaunchInstances {group_name(STACK, node_type)}" for node_type in (WORKER, MASTER)
)


class Calls:
    """Reads the calls that arrive after its creation."""

    def __init__(self) -> None:
        self._log = Path(os.environ["LOCAL_AWS_DIR"], "log", "requests.jsonl")
        self._read = self._log.stat().st_size

    def read(self) -> list[str]:
        """Return the action of each new call, with the group or the key that it names."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            # The last line may be incomplete.
            complete, newline, _ = log.read().rpartition(b"\n")
        self._read += len(complete + newline)
        return [_describe(json.loads(line)) for line in complete.splitlines()]


def _describe(entry: dict[str, object]) -> str:
    named = entry["resources"]
    assert isinstance(named, dict)
    key = named.get("Key", {}).get("id", "")
    subject = named.get("AutoScalingGroupName", "") or (key.get("S", "") if isinstance(key, dict) else key)
    return f"{entry['action']} {subject}".strip()


def kill_up_at(laptop: Laptop, *moments: str) -> None:
    """Begin ``dlcluster up``, and kill it with everything that it started after these lines and calls, in order.

    The server completes a call that has arrived; nobody reads its answer. A thread reads and closes the output.
    """
    calls, seen = Calls(), list[str]()
    process = laptop.start("dlcluster", "up", "--yes")
    assert process.stdout
    lines = _in_the_background(process.stdout)
    missing, end = list(moments), time.monotonic() + COMMAND_S
    try:
        while missing:
            assert time.monotonic() < end, f"waited {COMMAND_S} s for {missing[0]!r}: {seen}"
            is_over = process.poll() is not None
            new = [*_taken(lines), *calls.read()]
            seen += new
            for line in new:
                if missing and missing[0] in line:
                    del missing[0]
            assert not (missing and is_over), f"ended before {missing[0]!r}: {seen}"
            time.sleep(_POLL_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)


def _in_the_background(stream: IO[str]) -> "queue.SimpleQueue[str]":
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        with stream:
            for line in stream:
                lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _taken(lines: "queue.SimpleQueue[str]") -> list[str]:
    return [lines.get() for _ in range(lines.qsize())]
