"""Test ``dlcluster status --watch`` on a terminal: nodes, a job that starts, and the terminal after Ctrl-C."""

import re
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster
from tests.local.terminal import CTRL_C, Terminal

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
PROMPT = "prompt> "
MASTER = "deeplearning-master"


@contextmanager
def watched_job(cluster: DeployedCluster) -> Iterator[str]:
    """Run a job until the block ends; yield its ID."""
    words = ["launch", "--detach", "--name", "watched", "sleep", "300"]
    job = cluster.user.ssh(MASTER, shlex.join(words)).split()[-1]
    try:
        yield job
    finally:
        cluster.user.ssh(MASTER, shlex.join(["launch", "stop", "watched"]))


def shell_of(cluster: DeployedCluster) -> Terminal:
    """Start a shell of the user on a terminal."""
    return Terminal(
        ["bash", "--norc", "--noprofile", "--noediting"],
        directory=cluster.user.ssh_config.parent,
        environment={**cluster.user.environment, "PS1": PROMPT},
        kind="xterm",
    )


def test_watch_shows_nodes_and_a_new_job_and_restores_the_terminal(cluster: DeployedCluster) -> None:
    with closing(shell_of(cluster)) as shell:
        shell.expect(PROMPT)
        before = shell.modes
        shell.type("dlcluster status --watch --interval 1\n")
        shell.expect(rf"{STACK}: {NODES} of {NODES} nodes")
        rows = [shell.expect(rf"\b{node}\b.+running.+active.+ok")[0] for node in ("master", "worker2", "worker3")]
        assert {re.findall(r"i-\w+", row)[0] for row in rows} == cluster.addresses.keys()
        shell.expect("no job runs")
        with watched_job(cluster) as job:
            shell.expect(rf"job {job} RUNNING \(\S+\) on {NODES} nodes: sleep 300")
            shell.type(CTRL_C)
            last = shell.expect(rf"(?s)(.*){PROMPT}")[1]
        assert last.rindex(SHOW_CURSOR) > last.rfind(HIDE_CURSOR)
        assert shell.modes == before
        shell.type("echo code $?\n")
        shell.expect(r"code 130\b")
        shell.type("exit\n")
        assert shell.wait_for_end() == 0
