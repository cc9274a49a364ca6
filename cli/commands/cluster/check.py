"""``dlcluster check``: compare the nodes' devices and networks, and name the ones to replace."""

import sys
from typing import Final

from bootstrap.contract import TRAINER_LINK
from cli.command import cluster_command
from cli.errors import EXIT_FAILED, ClusterError
from cli.jobs.records import running_jobs
from cli.output import json_option, print_json, print_table, printable
from cli.reports.check import COLUMNS, parse_report
from cli.shared_options import Selection, invocation
from cli.ssh.master import connect_to_master
from cli.ssh.master_connection import CommandResult, MasterConnection, kill_on_disconnect, last_line

PROGRAM: Final = ("launch", "--force", "python", f"{TRAINER_LINK}/check", "--json")
"""Command of the job that measures. It also runs on differing nodes, because it names those, and on the master without
this command."""
SAID: Final = "check: "
"""Beginning of that program's own error messages."""
NO_PYTHON: Final = 127
"""Exit code of a rank whose node has no such command."""
TIMEOUT_S: Final = 240.0
"""Timeout for the job, in seconds: its ranks wait two minutes for each other, and measure for less than one."""


@cluster_command("check", examples=("dlcluster check", "dlcluster check --cluster vision --json"))
@json_option
def command(selection: Selection, *, as_json: bool) -> int:
    """Compare the nodes' GPUs, EFA devices and networks, and name the nodes to replace.

    All nodes run an all-reduce, first in pairs, then together: less than a minute. A node is named if it has fewer GPUs
    or EFA devices than it should have, or if even its fastest pair is below two thirds of the nodes' median. The exit
    code is 1 then. It is refused while a job runs.
    """
    with connect_to_master(selection) as (context, connection):
        _refuse_while_a_job_runs(connection)
        done = _measure(connection)
    membership = context.membership
    report = parse_report(done.stdout.decode(errors="replace"), membership.members)
    missing = max(membership.desired_training_nodes - len(report.nodes), 0)
    if as_json:
        print_json(cluster=context.cluster.name, missing_nodes=missing, **report.to_dict())
    else:
        print(report.summary)
        print_table(COLUMNS, [node.row for node in report.nodes])
        print("\n".join(report.last_lines))
        if missing:
            print(f"dlcluster: nodes missing: {missing}; {invocation()} status says why", file=sys.stderr)
    return EXIT_FAILED if report.findings else 0


def _refuse_while_a_job_runs(connection: MasterConnection) -> None:
    if running := running_jobs(connection):
        name = printable(running[-1])
        raise ClusterError(f"job {name} runs, and a check would share its network: wait, or {invocation()} stop {name}")


def _measure(connection: MasterConnection) -> CommandResult:
    """Run the job on all nodes, and end it with the connection. Raises ClusterError with the job's own reason."""
    done = connection.output(kill_on_disconnect(PROGRAM), keep_stdin_open=True, timeout_s=TIMEOUT_S)
    if done.exit_code:
        messages = [line.partition(SAID)[2] for line in done.stderr.splitlines() if SAID in line]
        reason = messages[0] if messages else last_line(done.stderr).removeprefix("launch: ")
        if done.exit_code == NO_PYTHON:
            reason += ": no python there, and the check needs one with PyTorch"
        raise ClusterError(f"the check failed: {printable(reason) or f'exit code {done.exit_code}'}")
    return done
