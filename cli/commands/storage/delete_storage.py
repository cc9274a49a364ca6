"""``dlcluster delete-storage [FILE_SYSTEM]``: list the file systems that clusters left behind, or delete one."""

import sys

import click

from cli.aws.clients import Clients, create_clients
from cli.aws.file_systems import FileSystem, find_file_system, made_file_systems
from cli.command import cluster_command
from cli.errors import ClusterError, UsageError
from cli.output import is_terminal, json_option, print_json, print_table, printable
from cli.shared_options import Selection
from stacks.prices.price_list import PriceList, price_list

COLUMNS = ("FILE SYSTEM", "CLUSTER", "GB", "$/MONTH", "USED BY")


@cluster_command(
    "delete-storage", examples=("dlcluster delete-storage", "dlcluster delete-storage fs-0123456789abcdef0")
)
@click.argument("file_system", required=False, metavar="[FILE_SYSTEM]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def command(selection: Selection, *, file_system: str | None, yes: bool, as_json: bool) -> int:
    """Delete a file system that a destroyed cluster left behind, with everything in it; without one, list them.

    It refuses a file system that a cluster uses or that has a mount target, and one that no cluster made. The prices
    are those of storage in us-east-1.
    """
    clients = create_clients(selection.region)
    if file_system is None:
        return _list(clients, selection.cluster, as_json=as_json)
    details = find_file_system(clients, file_system)
    if details.used_by:
        raise ClusterError(f"{file_system} is in use by stack {details.used_by}: run cdk destroy for it first")
    if details.mount_targets:
        listing = f"aws efs describe-mount-targets --region {clients.region} --file-system-id {file_system}"
        raise ClusterError(f"{file_system} has {details.mount_targets} mount targets and may be in use: {listing}")
    if not yes:
        _ask(details)
    clients.efs.delete_file_system(FileSystemId=file_system)
    if as_json:
        print_json(region=clients.region, file_system=file_system, gb=details.gb)
    else:
        print(f"deleted {file_system}, {details.gb:.1f} GB")
    return 0


def _list(clients: Clients, cluster: str | None, *, as_json: bool) -> int:
    prices = price_list(clients.region)
    file_systems = [file_system for file_system in made_file_systems(clients) if cluster in (None, file_system.cluster)]
    if as_json:
        print_json(region=clients.region, file_systems=[_document(file_system, prices) for file_system in file_systems])
        return 0
    if not file_systems:
        who = "no cluster" if cluster is None else f"no cluster {printable(cluster)!r}"
        print(f"dlcluster: {who} has left a file system in {clients.region}", file=sys.stderr)
        return 0
    print_table(
        COLUMNS,
        [
            (
                file_system.file_system_id,
                file_system.cluster,
                f"{file_system.gb:.1f}",
                f"{file_system.usd_per_month(prices):.2f}",
                file_system.used_by,
            )
            for file_system in file_systems
        ],
    )
    return 0


def _document(file_system: FileSystem, prices: PriceList) -> dict[str, object]:
    """Return a file system as a JSON object."""
    return {
        "id": file_system.file_system_id,
        "cluster": file_system.cluster,
        "gb": file_system.gb,
        "usd_per_month": file_system.usd_per_month(prices),
        "mount_targets": file_system.mount_targets,
        "used_by": file_system.used_by or None,
    }


def _ask(file_system: FileSystem) -> None:
    """Ask the user to retype the ID. Raises UsageError without a terminal, ClusterError for a wrong answer."""
    if not sys.stdin.isatty() or not is_terminal():
        raise UsageError("cannot prompt without a terminal: use --yes")
    name = f"{file_system.file_system_id} of cluster {file_system.cluster}"
    question = f"Delete {name}, {file_system.gb:.1f} GB, for good? Type its id"
    if click.prompt(question).strip() != file_system.file_system_id:
        raise ClusterError("nothing was deleted")
