"""``dlcluster setup`` brings a changed setup to running nodes, first to one and then to the others, never under a job.

``make soak`` runs it, after test_bake.py and in its cluster.
"""

import json
import re

import pytest

from tests.e2e.bake.setup_runs import SETUP_FILE, has_run
from tests.e2e.support.deployed_cluster import NODES, aliases
from tests.e2e.support.laptop import Laptop
from tests.waiting import wait_until

pytestmark = pytest.mark.soak

CHANGED = """\
#!/bin/bash
set -euo pipefail
date +%s%N >>/srv/changed
sleep 15
date +%s%N >>/srv/changed
"""
"""Script that tells when it ran; a job can be tried meanwhile."""
HOSTS = ("master", *(f"worker{index}" for index in range(2, NODES + 1)))
BEGIN_S = 60.0
END_S = 180.0
RUN = ("dlcluster", "run", "--no-sync")


def hashes(laptop: Laptop) -> set[str]:
    """Return the setups that ``dlcluster status`` shows, which have succeeded on every node."""
    nodes = json.loads(laptop.run("dlcluster", "status", "--json"))["nodes"]
    assert [has_run(node) for node in nodes] == [True] * NODES, nodes
    return {node["setup"]["sha256"] for node in nodes}


def changed_at(laptop: Laptop, host: str) -> list[int]:
    """Return when the changed script began and ended on a node, in nanoseconds."""
    return [int(line) for line in laptop.on(host, "cat /srv/changed 2>/dev/null || true").split()]


def test_changed_setup_reaches_running_nodes_and_no_job_meets_it(laptop: Laptop) -> None:
    before = hashes(laptop)
    (laptop.checkout / SETUP_FILE).write_text(CHANGED)
    laptop.run("cdk", "deploy")
    assert hashes(laptop) == before, "a deploy leaves running nodes alone"

    job = laptop.run(*RUN, "--detach", "--", "sleep", "1000").strip()
    refusal = laptop.output_of_failure("dlcluster", "setup")
    assert f"dlcluster: job {job} runs, and a setup may change what it uses: dlcluster stop\n" in refusal
    laptop.run("dlcluster", "stop", job)
    assert [changed_at(laptop, host) for host in HOSTS] == [[]] * NODES

    setup = laptop.start("dlcluster", "setup")
    wait_until(lambda: changed_at(laptop, "master"), "the script on the master", timeout_s=BEGIN_S, every_s=0.5)
    attempt = laptop.start(*RUN, "--", "echo", "started")
    printed, _ = attempt.communicate(timeout=END_S)
    assert (attempt.returncode, " started\n" in printed) == (1, False), printed
    assert "nothing started: the setup runs on deeplearning-worker1: " in printed
    said, _ = setup.communicate(timeout=END_S)
    assert setup.returncode == 0, said

    [after] = {line.split()[1].rstrip(":") for line in said.splitlines() if line.startswith("setup ")}
    assert after not in before
    wait_until(lambda: hashes(laptop) == {after}, "the status of all nodes", timeout_s=BEGIN_S, every_s=1.0)
    workers = ", ".join(HOSTS[1:])
    assert said.splitlines() == [
        f"master: running setup {after}",
        f"{workers}: running setup {after}",
        f"setup {after}: done on master, {workers}",
    ]
    times = {host: changed_at(laptop, host) for host in HOSTS}
    assert [len(time) for time in times.values()] == [2] * NODES
    ends = times["master"][1]
    assert all(ends < times[host][0] for host in HOSTS[1:]), times
    assert re.search(rf"^setup {after}: done on {NODES} of {NODES} nodes$", laptop.run("dlcluster", "status"), re.M)
    assert laptop.run("dlcluster", "setup") == f"setup {after}: done on all nodes before\n"
    laptop.wait_for_job_on(*aliases())
