"""``dlcluster pull [NODE:]REMOTE [LOCAL]``: copy a file or folder from a node."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from bootstrap.contract import MASTER
from cli.aws.nodes import choose_node
from cli.command import cluster_command
from cli.completion import NODE_SEPARATOR, complete_remote
from cli.errors import ClusterError
from cli.files.download import Differing, download, missing_path, remote_tar, require_directories
from cli.files.local_files import is_sent
from cli.files.progress import NAMED, plural, readable
from cli.output import json_option, print_json, printable
from cli.shared_options import Selection
from cli.ssh.master import connect_to_master

MISSING: Final = "No such file or directory"
"""End of tar's message about a path that does not exist."""


@cluster_command(
    "pull", examples=("dlcluster pull job/out ../out", "dlcluster pull worker2:job/checkpoints ../checkpoints")
)
@json_option
@click.option("--overwrite", is_flag=True, help="Also replace local files that are newer than the node's.")
@click.argument(
    "remote",
    shell_complete=complete_remote,
    help="A path on a node, from the home directory: PATH on the master, or NODE:PATH.",
)
@click.argument(
    "local",
    default=".",
    type=click.Path(),
    help="Destination; a directory, or a name with a slash at its end, receives it inside (default: .).",
)
def command(selection: Selection, *, remote: str, local: str, overwrite: bool, as_json: bool) -> int:
    """Copy a file or folder from a node. Symbolic links are left out.

    A local file that differs is replaced and named; if it is newer than the node's, it stays, and the exit code is 1.

    Choose a place outside of the project, or one that .gitignore names, with or without a git checkout: run and push
    send everything else to the nodes.
    """
    node, colon, path = remote.partition(NODE_SEPARATOR)
    if not colon or "/" in node:
        node, path = MASTER, remote
    require_directories(local)
    differing = Differing()
    with connect_to_master(selection) as (context, connection):
        membership = context.membership
        member = choose_node(node, membership.members, cluster_name=context.cluster.name)
        try:
            source = remote_tar(path, member, master=membership.master)
            got = download(connection, source, local, differing=differing, overwrites=overwrite)
        except ClusterError as error:
            if not str(error).endswith(MISSING):
                raise
            raise ClusterError(f"{node} has no {missing_path(remote, path)}") from error
        finally:
            # Even if the connection broke midway, the user must learn which local files are lost.
            if differing.replaced:
                print(f"dlcluster: replaced {_names(differing.replaced)}, which differed", file=sys.stderr)
    for warning in got.warnings:
        print(f"dlcluster: {warning}", file=sys.stderr)
    if is_sent(got.path):
        advice = "pull to a place outside, or name it in .gitignore"
        print(f"dlcluster: run and push from here will send {printable(str(got.path))}: {advice}", file=sys.stderr)
    if as_json:
        print_json(
            cluster=context.cluster.name,
            path=str(got.path),
            files=got.files,
            bytes=got.size,
            left_out=got.links,
            replaced=list(map(str, differing.replaced)),
            kept=list(map(str, differing.kept)),
        )
    else:
        left = f", {got.links} links left out" if got.links else ""
        print(f"{printable(str(got.path))}: {plural(got.files)}, {readable(got.size)}{left}")
    if differing.kept:
        advice = "pull to another place, or give --overwrite"
        raise ClusterError(f"kept {_names(differing.kept)}: newer here than on {node}, and different; {advice}")
    return 0


def _names(paths: Sequence[Path]) -> str:
    """Return the number of files and the first names."""
    shown = ", ".join(printable(str(path)) for path in paths[:NAMED])
    return f"{plural(len(paths))} ({shown}{', ...' if len(paths) > NAMED else ''})"
