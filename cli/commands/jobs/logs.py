"""``dlcluster logs [-f] [JOB]``: show a job's output."""

import sys

import click

from cli.command import cluster_command
from cli.completion import complete_host
from cli.errors import EXIT_INTERRUPTED, UsageError
from cli.jobs.follow import print_end, show_logs
from cli.jobs.records import read_job
from cli.shared_options import Selection, invocation
from cli.ssh.master import connect_to_master
from cli.ssh.master_connection import MasterConnection


@cluster_command("logs", examples=("dlcluster logs -f", "dlcluster logs baseline", "dlcluster logs 20260101 --rank 3"))
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends; Ctrl-C stops only the display.")
@click.option("--rank", metavar="N", help="Only this rank's output, read from its node.")
@click.option(
    "--node", metavar="HOST", shell_complete=complete_host, help="Only this node's output, read from the node."
)
@click.argument(
    "job", required=False, help="Job id, its beginning or end, or the job's name (the running job, else the latest)."
)
def command(selection: Selection, *, follow: bool, rank: str | None, node: str | None, job: str | None) -> int:
    """Show a job's output, each line with its node; with --follow, the job's final state at its end."""
    options = {"--rank": rank, "--node": node}
    args = [word for name, value in options.items() if value is not None for word in (name, value)]
    with connect_to_master(selection) as (context, connection):
        advice = f"{job} is a cluster: dlcluster logs --cluster {job} shows its last job"
        try:
            if follow:
                return _follow(connection, args, job)
            code = show_logs(connection, [*args, *([job] if job else [])])
        except UsageError as error:
            if job != context.cluster.name:
                raise
            raise UsageError(f"{error}; {advice}") from error
    if code and job == context.cluster.name:
        print(f"dlcluster: {advice}", file=sys.stderr)
    return code


def _follow(connection: MasterConnection, args: list[str], job: str | None) -> int:
    """Show a job's output until it ends, then its final state."""
    # Ask first: once the job has ended, the same word may mean another one.
    job_id = read_job(connection, job).id
    try:
        code = show_logs(connection, ["-f", *args, job_id])
    except KeyboardInterrupt:
        after_echo = "\n" if sys.stderr.isatty() else ""  # the terminal has printed ^C
        print(f"{after_echo}dlcluster: the job keeps running; {invocation()} stop ends it", file=sys.stderr)
        return EXIT_INTERRUPTED
    if not code:
        print_end(read_job(connection, job_id))
    return code
