"""``dlcluster run -- COMMAND``: copy the current directory to every node and run a command on all."""

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from cli.cluster_context import find_selected_cluster
from cli.completion import complete_file
from cli.errors import UsageError
from cli.files.progress import summary, upload_bar
from cli.files.upload import Upload, upload
from cli.jobs.follow import follow_to_end
from cli.jobs.launch_options import LaunchOptions, launch_options
from cli.jobs.misplaced_options import RunVerb
from cli.jobs.other_launchers import refuse_other_launchers, refuse_slurm
from cli.jobs.refused_options import refuse_options
from cli.jobs.script import check_is_sent, find_script, note_independent_processes
from cli.jobs.start import start_job, warn_of_jobs
from cli.output import json_option, print_json, printable
from cli.reports.releases import check_secrets_are_known, release_lines
from cli.shared_options import Selection
from cli.ssh.access import remote_line
from cli.ssh.master import connect_to_master, ssh_target
from cli.ssh.remote import MasterConnection, run_command
from cli.verb import verb

LAUNCHER: Final = "launch"
SCRIPT: Final = ".py"
SHELL_SCRIPT: Final = ".sh"
EXAMPLES: Final = (
    "dlcluster run -- train.py --lr 0.1",
    "dlcluster run -n 3 --env WANDB_MODE=offline -- train.py",
    "dlcluster run --detach --max-restarts 3 -- python -m my.train",
    "dlcluster run --durable --wait --detach --name baseline -- train.py",
    "dlcluster run -- launch list          launch's own command, in the master's home directory",
)


@verb("run", examples=EXAMPLES, interspersed=False, cls=RunVerb)
@click.option("--detach", is_flag=True, help="Print the job's id and return; see dlcluster logs and stop.")
@click.option("--sync/--no-sync", default=True, help="Copy the current directory first (--sync).")
@click.option("--to", metavar="NAME", help="Directory's name on the nodes, in the home directory (default: its own).")
@launch_options
@refuse_options
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
    passed_on = LaunchOptions(**options)
    passed_on.check(os.environ)
    if command[0] == LAUNCHER:
        given = detach or not sync or to is not None or as_json or bool(passed_on.words())
        return _run_on_master(selection, command, given=given)
    if passed_on.sync_overwrite and not sync:
        raise UsageError("--sync-overwrite cannot be combined with --no-sync, which sends nothing")
    if to is not None and not sync:
        raise UsageError("--to cannot be combined with --no-sync, which sends nothing")
    if as_json and not detach:
        raise UsageError("--json requires --detach: without it the job's output is printed")
    refuse_slurm(command)
    script = find_script(command)
    if sync:
        check_is_sent(script)
        _check_script(command[0])
    with connect_to_master(selection) as (context, connection):
        refuse_other_launchers(command, nnodes=passed_on.nnodes or context.membership.desired_training_nodes)
        if passed_on.secret:
            check_secrets_are_known(context.membership.members)
        for line in release_lines(context.membership.members, stack=context.cluster.release):
            print(f"dlcluster: {line}", file=sys.stderr)
        sent = _send(connection, to=to) if sync else None
        if sent is not None:
            note_independent_processes(script, nodes=passed_on.nnodes or len(context.membership.members))
        job_id = start_job(connection, command, options=passed_on, sent=sent)
        if not detach:
            may_wait = passed_on.durable or passed_on.wait
            print(f"dlcluster: job {job_id} {'is submitted' if may_wait else 'runs'}", file=sys.stderr)
            return follow_to_end(connection, job_id)
    if as_json:
        print_json(cluster=context.cluster.name, job=job_id, directory=f"~/{sent.name}" if sent else None)
    else:
        print(job_id)
        print(f"dlcluster: follow it with: dlcluster logs -f {job_id}", file=sys.stderr)
    return 0


def _check_script(name: str) -> None:
    """Raise UsageError if the command is a script that the directory does not have, or a shell would not find."""
    if name.endswith(SHELL_SCRIPT) and "/" not in name and Path(name).is_file():
        raise UsageError(f"no program {printable(name)!r}: did you mean bash {printable(name)}?")
    if not name.endswith(SCRIPT) or Path(name).is_absolute() or Path(name).exists():
        return
    scripts = sorted(path.name for path in Path(name).parent.glob(f"*{SCRIPT}"))
    similar = difflib.get_close_matches(Path(name).name, scripts, n=1)
    suggestion = f": did you mean {printable(str(Path(name).with_name(similar[0])))}?" if similar else ""
    raise UsageError(f"{Path.cwd()} has no {name!r}{suggestion}")


def _send(connection: MasterConnection, *, to: str | None) -> Upload:
    sent = upload(connection, Path.cwd(), to=to, show=upload_bar)
    print(f"dlcluster: {summary(sent)}", file=sys.stderr)
    warn_of_jobs(connection, sent)
    return sent


def _run_on_master(selection: Selection, command: Sequence[str], *, given: bool) -> int:
    """Run a command line that begins with launch on the master, with the user's agent, as a shell there would."""
    if given:
        raise UsageError("options of run do not apply to launch: write launch's own after the word launch")
    target = ssh_target(find_selected_cluster(selection))
    line = remote_line(tuple(command))
    code = run_command(target, line, stdout_fd=sys.stdout.fileno(), stderr_fd=sys.stderr.fileno())
    if code:
        print("dlcluster: launch ran in the master's home directory, and nothing was copied there", file=sys.stderr)
    return code
