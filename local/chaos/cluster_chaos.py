"""Break a cluster with random faults, then wait until an outside observer finds it healthy.

    python -m local run -- python -m local.chaos.cluster_chaos --faults 70 --seed 7     (make soak)

deploys a master and four workers first. The same seed gives the same faults at the same times.
"""

import argparse
import sys
from collections.abc import Mapping

from local.chaos.observer import ClusterObserver
from local.chaos.plan import KINDS, make_plan, node_target
from local.chaos.plan_runner import run_plan
from local.faults.faults import Faults
from local.run.user import deploy_arguments, temporary_user

NODES = 5
CLUSTER = "deeplearning"
RECOVERY_TIMEOUT_S = 300.0
"""Seconds for recovery after the last fault, by which time every fault with a duration has ended."""
SPACING_S = 8.0
"""Average seconds between the starts of two faults; a replacement takes longer, so they overlap."""


def run_chaos(
    cluster: str, *, seed: int, count: int, within_s: float, min_per_kind: int, environment: Mapping[str, str]
) -> None:
    """Run a plan on a healthy cluster and wait until it is healthy again. Raises TimeoutError with the differences."""
    faults, observer = Faults.current(), ClusterObserver.current(cluster, environment=environment)
    before = observer.wait_for_agreement(RECOVERY_TIMEOUT_S)
    targets = [node_target(number) for number in sorted(before.instances)]
    plan = make_plan(seed, count=count, within_s=within_s, targets=targets, kinds=KINDS, min_per_kind=min_per_kind)
    _log(f"{plan}\n")
    try:
        run_plan(plan, faults, instances=lambda: faults.instances(cluster), log=_log)
    finally:
        faults.undo_all()
    after = observer.wait_for_agreement(RECOVERY_TIMEOUT_S, previous=before)
    _log(f"recovered: generation {after.generation}, {after.instances}")


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.chaos.cluster_chaos", allow_abbrev=False)
    parser.add_argument("--faults", type=int, default=5 * len(KINDS), help="how many")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with temporary_user() as user:
        user.cdk("bootstrap")
        user.cdk(*deploy_arguments(nodes=NODES))
        run_chaos(
            CLUSTER,
            seed=options.seed,
            count=options.faults,
            within_s=options.faults * SPACING_S,
            min_per_kind=options.faults // len(KINDS),
            environment=user.environment,
        )
        user.cdk("destroy", "--force")
    return 0


if __name__ == "__main__":
    sys.exit(main())
