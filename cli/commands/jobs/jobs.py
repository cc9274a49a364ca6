"""``dlcluster jobs``: list the jobs that were started on the master."""

from cli.command import cluster_command
from cli.jobs.advice import failure_lines
from cli.jobs.records import read_jobs, utc_now
from cli.output import json_option, print_json, print_table, printable
from cli.shared_options import Selection
from cli.ssh.master import connect_to_master

COLUMNS = ("JOB", "STATE", "SUBMITTED", "TIME", "NODES", "BY", "NAME", "COMMAND")
NAME = COLUMNS.index("NAME")


@cluster_command(
    "jobs", examples=("dlcluster jobs", "dlcluster jobs --json | jq '.jobs[] | select(.state == \"RUNNING\") | .id'")
)
@json_option
def command(selection: Selection, *, as_json: bool) -> int:
    """List the jobs that were started on the master, newest last.

    If the last job failed, lines below the table say why, also for the two jobs before it.
    """
    with connect_to_master(selection) as (context, connection):
        jobs = read_jobs(connection)
    if as_json:
        print_json(cluster=context.cluster.name, jobs=[job.to_dict() for job in jobs])
    else:
        now = utc_now()
        rows: list[tuple[str, ...]] = [COLUMNS, *(job.row(now) for job in jobs)]
        if not any(job.name for job in jobs):
            rows = [row[:NAME] + row[NAME + 1 :] for row in rows]
        print_table(rows[0], rows[1:])
        for job in jobs:
            if job.waiting is not None:
                print(f"{printable(job.id)} is waiting, {printable(job.waiting)}")
        for line in failure_lines(jobs):
            print(printable(line))
    return 0
