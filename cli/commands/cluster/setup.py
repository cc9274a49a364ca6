"""``dlcluster setup``: run the deployed setup on nodes that were launched before it."""

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import click

from bootstrap.contract import SETUP_DONE, SETUP_HASH_LENGTH
from cli.aws.clusters import DeployedSetup, deployed_setup
from cli.aws.nodes import ClusterNode
from cli.command import cluster_command
from cli.errors import ClusterError
from cli.jobs.records import running_jobs
from cli.output import json_option, print_json, printable
from cli.shared_options import Selection, invocation
from cli.ssh.from_master import SSH_FAILED, bootstrap_command
from cli.ssh.master import connect_to_master
from cli.ssh.master_connection import MasterConnection, last_line

AT_ONCE: Final = 8
"""Number of nodes that run the setup simultaneously once it has succeeded on one; a server allows ten channels per
connection (MaxSessions in sshd_config(5))."""
MARGIN_S: Final = 120.0
"""Seconds for a node's answer beyond its setup."""
LOGIN_S: Final = 120.0
"""Seconds during which a failing login is retried."""
RETRY_S: Final = 5.0


@cluster_command("setup", examples=("dlcluster setup", "dlcluster setup --cluster vision --json"))
@json_option
def command(selection: Selection, *, as_json: bool) -> int:
    """Run the setup of the last deploy on nodes that were launched before it.

    New nodes run it anyway. It runs on one node first, then on eight at a time, and starts on no more once it has
    failed; a node on which it failed gets no more jobs. It is refused while a job runs, and no job starts on a node
    while the setup runs there. Nodes that already have it are skipped.
    """
    with connect_to_master(selection) as (context, connection):
        setup = deployed_setup(context.cluster)
        done = f"{SETUP_DONE}:{setup.sha256[:SETUP_HASH_LENGTH]}"
        behind = [member for member in context.membership.members if member.setup != done]
        for members in _first_one_then_many(behind):
            _refuse_while_a_job_runs(connection)
            if not as_json:
                where = ", ".join(member.short_name for member in members)
                click.echo(f"{where}: running setup {setup.sha256[:SETUP_HASH_LENGTH]}", file=sys.stderr)
            _run_on_all(connection, members, setup)
    names = [member.short_name for member in behind]
    if as_json:
        print_json(cluster=context.cluster.name, sha256=setup.sha256, nodes=names)
    else:
        print(f"setup {setup.sha256[:SETUP_HASH_LENGTH]}: done on {', '.join(names) if names else 'all nodes before'}")
    return 0


def _refuse_while_a_job_runs(connection: MasterConnection) -> None:
    if running := running_jobs(connection):
        raise ClusterError(
            f"job {printable(running[-1])} runs, and a setup may change what it uses: {invocation()} stop"
        )


def _first_one_then_many(members: Sequence[ClusterNode]) -> Iterator[Sequence[ClusterNode]]:
    yield from (members[:1],) if members else ()
    yield from (members[first : first + AT_ONCE] for first in range(1, len(members), AT_ONCE))


def _run_on_all(connection: MasterConnection, members: Sequence[ClusterNode], setup: DeployedSetup) -> None:
    """Run the setup on several nodes at a time, to the end on each. Raises ClusterError naming those that failed."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        failures = [*threads.map(lambda member: _run_on(connection, member, setup), members)]
    if failed := [failure for failure in failures if failure]:
        raise ClusterError("; ".join(failed))


def _run_on(connection: MasterConnection, member: ClusterNode, setup: DeployedSetup) -> str:
    """Run the setup on one node, from the master; return the last line of its output if it failed, else nothing."""
    args = ["apply-setup", "--url", setup.url, "--sha256", setup.sha256, "--timeout", str(setup.timeout_s)]
    command = bootstrap_command(member, *args)
    end = time.monotonic() + LOGIN_S
    while (done := connection.output(command, timeout_s=setup.timeout_s + MARGIN_S)).exit_code == SSH_FAILED:
        # A master whose setup had failed is in no list; nodes admit it again once they know that it is back.
        if time.monotonic() >= end:
            break
        time.sleep(RETRY_S)
    if done.exit_code:
        reason = last_line(done.stderr).removeprefix("bootstrap: ") or f"exit code {done.exit_code}"
        return f"{member.short_name}: {printable(reason)}"
    return ""
