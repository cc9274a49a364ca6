"""``dlcluster push [DIR]``: copy a directory to every node."""

import sys
from pathlib import Path

import click

from cli.command import cluster_command
from cli.files.progress import summary, upload_bar
from cli.files.upload import upload
from cli.jobs.launch_options import overwrite_option
from cli.jobs.start import copy_to_all_nodes, warn_about_shared_directory
from cli.output import json_option, print_json
from cli.shared_options import Selection
from cli.ssh.master import connect_to_master


@cluster_command("push", examples=("dlcluster push", "dlcluster push ~/src/model"))
@json_option
@overwrite_option
@click.option("--to", metavar="NAME", help="Directory's name on the nodes, in the home directory (default: its own).")
@click.argument(
    "directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path), help="What to copy (default: .)."
)
def command(selection: Selection, *, directory: Path, to: str | None, sync_overwrite: bool, as_json: bool) -> int:
    """Copy a directory to every node, under its own name in the home directory.

    Files that .gitignore names are left out; outside a git checkout, hidden folders are too. Only what differs is sent.
    Files written there by jobs are kept; a file that was changed there since it was sent is not overwritten.
    """
    with connect_to_master(selection) as (context, connection):
        uploaded = upload(connection, directory, to=to, show=upload_bar)
        print(f"dlcluster: {summary(uploaded)}", file=sys.stderr)
        warn_about_shared_directory(connection, uploaded)
        copy_to_all_nodes(connection, uploaded, overwrites=sync_overwrite)
    if as_json:
        print_json(
            cluster=context.cluster.name,
            directory=f"~/{uploaded.name}",
            files=uploaded.files,
            bytes=uploaded.size,
            sent_files=uploaded.sent_files,
            sent_bytes=uploaded.sent_size,
        )
    else:
        print(f"{directory.resolve()} is in ~/{uploaded.name} on every node")
    return 0
