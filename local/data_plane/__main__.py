"""Run the data plane of the local AWS.

python -m local.data_plane RUN_DIR CGROUP LAYERS     (inside the sandbox; started by local.run.startup)
"""

import logging
import sys
import time
from pathlib import Path

import boto3

from local.data_plane import changes
from local.data_plane.reconciler import Reconciler
from local.network import check_ip

POLL_S = 0.2


def main() -> None:
    """Reconcile until the process is ended."""
    run_dir, cgroup, layers = Path(sys.argv[1]), Path(sys.argv[2]), [Path(p) for p in sys.argv[3].split(":")]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    reconciler = Reconciler(boto3.Session(), run_dir=run_dir, cgroup=cgroup, layers=layers)
    change_reader = changes.ChangeReader(run_dir / changes.FILE)
    check_ip.start()
    while True:
        reconciler.reconcile(reread=change_reader.is_due())
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
