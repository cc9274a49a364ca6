"""Deploy a cluster, train on all of its nodes and destroy it, like a user, on the local AWS.

python -m local.demo 3           (inside its own local AWS: `make demo`)
python -m local.demo 3 --keep    (inside one that stays up with its cluster: `KEEP=1 make demo`)
"""

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from local.errors import UsageError
from local.run.user import User, deploy_arguments, session_user, temporary_user

MASTER = "deeplearning-master"
SHOW = """\
echo "--- /etc/hosts"; sed -n '/BEGIN deeplearning/,/END deeplearning/p' /etc/hosts
echo "--- $DEEPLEARNING_WORKERS_PATH"; cat "$DEEPLEARNING_WORKERS_PATH"
echo "--- variables"; env | grep ^DEEPLEARNING_ | sort
echo "--- from the master to a worker, by the cluster's own key"
for host in $(tail -n 1 "$DEEPLEARNING_WORKERS_PATH"); do ssh -o BatchMode=yes "$host" hostname; done
"""
TRAIN = "launch python /opt/deeplearning/trainer --network lenet --kv-store dist_sync"


class Steps:
    """Announces each step and records its duration."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        sys.stdout.write(f"\n=== {name}\n")
        sys.stdout.flush()
        started = self._clock()
        yield
        self._taken.append((name, self._clock() - started))

    def summary(self) -> str:
        rows = [*self._taken, ("all", sum(seconds for _, seconds in self._taken))]
        return "\n".join(f"{seconds:7.1f} s  {name}" for name, seconds in rows)


def parse_nodes(text: str) -> int:
    """Parse the number of nodes. Raises UsageError."""
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"NODES must be a whole number, at least 1, got {text!r}")
    return int(text)


def master_and_workers(nodes: int) -> str:
    """Describe a number of nodes as a master and workers."""
    return f"a master and {nodes - 1} worker{'' if nodes == 2 else 's'}"


def show_and_train(user: User, *, nodes: int, steps: Steps) -> None:
    with steps.step("ssh -A to the master: what every node knows"):
        user.write_ssh_config()
        user.run(*user.ssh_command(MASTER, SHOW))
    with steps.step(f"train LeNet on digits, dist_sync, on {nodes} nodes"):
        sys.stdout.write(f"$ {TRAIN}\n")
        sys.stdout.flush()
        user.run(*user.ssh_command(MASTER, TRAIN))


def run_demo(user: User, *, nodes: int, keep: bool, steps: Steps) -> None:
    with steps.step("cdk bootstrap (once an account and region)"):
        user.cdk("bootstrap")
    with steps.step(f"cdk deploy: {master_and_workers(nodes)}, ready when each has signaled"):
        user.cdk(*deploy_arguments(nodes=nodes))
    try:
        show_and_train(user, nodes=nodes, steps=steps)
    finally:
        if not keep:
            with steps.step("cdk destroy"):
                user.cdk("destroy", "--force")


def main() -> int:
    nodes, keep = int(sys.argv[1]), "--keep" in sys.argv[2:]
    logging.basicConfig(level=logging.WARNING)
    steps = Steps()
    try:
        with session_user() if keep else temporary_user() as user:
            run_demo(user, nodes=nodes, keep=keep, steps=steps)
    except KeyboardInterrupt:
        return 130
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, TimeoutError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"\nTimings{'' if keep else ' (everything was removed)'}:\n{steps.summary()}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
