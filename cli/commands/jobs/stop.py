"""``dlcluster stop [JOB]``: stop a job on all nodes."""

import click

from cli.command import cluster_command
from cli.errors import ClusterError, UsageError
from cli.jobs.records import run_launcher_command
from cli.output import json_option, print_json, printable
from cli.shared_options import Selection, invocation
from cli.ssh.master import connect_to_master


@cluster_command("stop", examples=("dlcluster stop", "dlcluster stop baseline", "dlcluster stop 20260101"))
@json_option
@click.argument(
    "job", required=False, help="Job id, its beginning or end, or the job's name (default: the only running job)."
)
def command(selection: Selection, *, job: str | None, as_json: bool) -> int:
    """Stop a job on all nodes, and return when it has ended.

    Its processes get SIGTERM, and SIGKILL ten seconds later. cdk destroy removes the cluster itself.
    """
    with connect_to_master(selection) as (context, connection):
        try:
            done = run_launcher_command(connection, "stop", *([job] if job else []))
        except ClusterError as error:
            if job != context.cluster.name:
                raise
            advice = f"{invocation()} pause terminates its nodes, cdk destroy removes it"
            raise UsageError(f"{error}; {job} is a cluster: {advice}") from error
    printed = done.stdout.decode(errors="replace").split()
    if len(printed) != 2:
        raise ClusterError("the launcher on the master did not say how the job ended")
    job_id, state = map(printable, printed)
    if as_json:
        print_json(cluster=context.cluster.name, job=job_id, state=state)
    else:
        print(f"{job_id} {state}")
    return 0
