"""Test that the nodes' sshd processes end with the tests that started them."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.launcher.loopback_cluster import wait_until_gone

REPOSITORY = Path(__file__).parents[2]
RUNS_NODES = """
import sys
from pathlib import Path
from tests.launcher.sshd import make_key, sshd_nodes
directory = Path(sys.argv[1])
with sshd_nodes(directory, ["127.0.0.2", "127.0.0.3"], authorized=make_key(directory / "identity")):
    print(flush=True)
    sys.stdin.read()
"""
"""Program that runs nodes, prints a line once they listen, and waits."""


def test_killed_test_run_leaves_no_sshd(tmp_path: Path) -> None:
    command, pipe = [sys.executable, "-c", RUNS_NODES, str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"\n"
        children = [int(pid) for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
        sshds = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "sshd\n"]
        run.kill()
    assert len(sshds) == 2
    try:
        wait_until_gone(sshds, seconds=10)
    finally:
        for pid in sshds:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
