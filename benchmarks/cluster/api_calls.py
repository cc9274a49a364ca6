"""Count the API calls of an unchanging cluster.

``control_calls_N``: calls per minute of a complete cluster of N nodes to EC2, Auto Scaling and CloudFormation; they
must not grow with the nodes. ``table_reads_N``: reads of the cluster's table per node and minute. Both are counted in
the control plane's request log once all nodes agree. Run by ``make bench B=api_calls``, on the local AWS.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from benchmarks.harness.cluster import AGREEMENT_TIMEOUT_S, observer, run_cdk, run_in_local_aws, user_with_cluster
from local.run.user import deploy_arguments

SIZES = (2, 8)
SETTLE_S = 20.0
"""Seconds until no agent polls at its fast rate."""
WINDOW_S = 90.0
"""Seconds to count: twice the longest period of an agent, the master's call to EC2 in every third pass."""
CONTROL = frozenset({"ec2", "autoscaling", "cloudformation"})
READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan", "TransactGetItems"})


def measure() -> None:
    with user_with_cluster(nodes=SIZES[0]) as user:
        for size in SIZES:
            if size != SIZES[0]:
                run_cdk(user, *deploy_arguments(nodes=size))
            observer(user).wait_for_agreement(AGREEMENT_TIMEOUT_S)
            time.sleep(SETTLE_S)
            began = time.time()
            time.sleep(WINDOW_S)
            report(size, Counter(calls(began, began + WINDOW_S)))


def calls(start: float, end: float) -> Iterator[tuple[str, str]]:
    """Return service and action of each call of a node within a period."""
    log = Path(os.environ["LOCAL_AWS_DIR"], "log", "requests.jsonl")
    for line in map(json.loads, log.read_text().splitlines()):
        user_id = line.get("caller", {}).get("user_id", "")
        if ":i-" in user_id and start <= datetime.fromisoformat(line["time"]).timestamp() < end:
            yield line["service"], line["action"]


def report(size: int, found: Counter[tuple[str, str]]) -> None:
    minutes = WINDOW_S / 60
    control = sum(count for (service, _), count in found.items() if service in CONTROL)
    reads = sum(count for (service, action), count in found.items() if service == "dynamodb" and action in READS)
    for (service, action), count in sorted(found.items()):
        print(f"{size} nodes: {service}:{action} {count / minutes:.1f} a minute", file=sys.stderr)
    print(f"control_calls_{size} {control / minutes:.1f} per_min")
    print(f"table_reads_{size} {reads / minutes / size:.1f} per_min", flush=True)


if __name__ == "__main__":
    sys.exit(run_in_local_aws("benchmarks.cluster.api_calls", measure))
