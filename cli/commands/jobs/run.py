"""``dlcluster run -- COMMAND``: copy the current directory to every node and run a command on all."""

import os
import sys
from typing import Any, Final

import click

from cli.command import cluster_command
from cli.completion import complete_file
from cli.errors import UsageError
from cli.jobs.follow import follow_to_end
from cli.jobs.launch_options import LaunchOptions, add_launch_options
from cli.jobs.misplaced_options import RunCommand
from cli.jobs.nested_launchers import refuse_cluster_name, refuse_nested_launchers, refuse_other_tools
from cli.jobs.script import find_script, note_independent_processes, require_in_upload
from cli.jobs.shell_scripts import check_shell_script, find_shell_script
from cli.jobs.start import LAUNCHER, run_on_master, start_job, upload_directory
from cli.jobs.unsupported_options import refuse_unsupported_options
from cli.output import json_option, print_json
from cli.reports.releases import check_secrets_are_known, release_lines
from cli.shared_options import Selection, invocation
from cli.ssh.master import connect_to_master

EXAMPLES: Final = (
    "dlcluster run -- train.py --lr 0.1",
    "dlcluster run -n 3 --env WANDB_MODE=offline -- train.py",
    "dlcluster run --detach --max-restarts 3 -- python -m my.train",
    "dlcluster run --durable --wait --detach --name baseline -- train.py",
    "dlcluster run -- launch list          launch's own command, in the master's home directory",
)


@cluster_command("run", examples=EXAMPLES, interspersed=False, cls=RunCommand)
@click.option("--detach", is_flag=True, help="Print the job's id and return; see dlcluster logs and stop.")
@click.option("--sync/--no-sync", default=True, help="Copy the current directory to the nodes first (default: --sync).")
@click.option("--to", metavar="NAME", help="Directory's name on the nodes, in the home directory (default: its own).")
@add_launch_options
@refuse_unsupported_options
@json_option
@click.argument("command", metavar="[--] COMMAND ...", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_file)
def command(
    selection: Selection,
    /,
    *,
    command: tuple[str, ...],
    detach: bool,
    sync: bool,
    to: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Copy the current directory to every node and run a command on all of them, as one job.

    The command gets RANK, WORLD_SIZE, MASTER_ADDR and so on, as from torchrun; NAME.py is run with python. Files that
    .gitignore names are not copied. Options after the command's name are its own. Each line of output begins with its
    node. The job runs on the cluster, not here: on Ctrl-C dlcluster asks whether to leave it running.
    """
    if not command:
        raise UsageError("no command given, as in: dlcluster run -- train.py --lr 0.1")
    launch_options = LaunchOptions(**options)
    launch_options.check(os.environ)
    if command[0] == LAUNCHER:
        if detach or not sync or to is not None or as_json or launch_options.to_args():
            raise UsageError("options of run do not apply to launch: write launch's own after the word launch")
        return run_on_master(selection, command)
    for name, is_given in (("--sync-overwrite", launch_options.sync_overwrite), ("--to", to is not None)):
        if is_given and not sync:
            raise UsageError(f"{name} cannot be combined with --no-sync, which sends nothing")
    if as_json and not detach:
        raise UsageError("--json requires --detach: without it the job's output is printed")
    refuse_other_tools(command)
    script = find_script(command)
    if sync:
        for any_script in (script, find_shell_script(command)):
            require_in_upload(any_script)
        check_shell_script(command)
    with connect_to_master(selection) as (context, connection):
        nodes = launch_options.nnodes or context.membership.desired_training_nodes
        refuse_cluster_name(command, context.cluster.name)
        refuse_nested_launchers(command, nodes=nodes)
        if launch_options.secret:
            check_secrets_are_known(context.membership.members)
        for line in release_lines(context.membership.members, stack=context.cluster.release):
            print(f"dlcluster: {line}", file=sys.stderr)
        uploaded = upload_directory(connection, to=to) if sync else None
        if uploaded is not None:
            note_independent_processes(script, nodes=nodes)
        job_id = start_job(connection, command, options=launch_options, uploaded=uploaded, log_follows=not detach)
        if not detach:
            may_wait = launch_options.durable or launch_options.wait
            print(f"dlcluster: job {job_id} {'is submitted' if may_wait else 'runs'}", file=sys.stderr)
            return follow_to_end(connection, job_id)
    if as_json:
        print_json(cluster=context.cluster.name, job=job_id, directory=f"~/{uploaded.name}" if uploaded else None)
    else:
        print(job_id)
        print(f"dlcluster: follow it with: {invocation()} logs -f {job_id}", file=sys.stderr)
    return 0
