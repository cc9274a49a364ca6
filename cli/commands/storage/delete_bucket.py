"""``dlcluster delete-bucket [BUCKET]``: list the buckets that clusters created, or delete one with every version."""

import sys

import click

from cli.aws.clients import Clients, create_clients
from cli.aws.orphaned_buckets import Bucket, delete_versions, made_buckets, used_by_stacks
from cli.command import cluster_command
from cli.errors import ClusterError, UsageError
from cli.output import is_terminal, json_option, print_json, print_table, printable
from cli.shared_options import Selection

COLUMNS = ("BUCKET", "CLUSTER", "USED BY")


@cluster_command("delete-bucket", examples=("dlcluster delete-bucket", "dlcluster delete-bucket vision-bucket-1a2b3c"))
@click.argument("bucket", required=False, metavar="[BUCKET]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def command(selection: Selection, *, bucket: str | None, yes: bool, as_json: bool) -> int:
    """Delete a bucket that a destroyed cluster left behind, with every version of every object; without one, list them.

    It refuses a bucket that a stack uses, and one that no cluster made. It sees only the stacks of this region and
    account, so a bucket that a cluster elsewhere uses looks unused. An interrupted run may be repeated.
    """
    clients = create_clients(selection.region)
    if bucket is None:
        return _list(clients, selection.cluster, as_json=as_json)
    bucket_record = _find(clients, bucket)
    if used_by := used_by_stacks(clients.cloudformation).get(bucket):
        raise ClusterError(f"{bucket} is in use by stack {used_by}: run cdk destroy for it first")
    if not yes:
        _ask(bucket_record)
    deleted = 0
    for count in delete_versions(clients.s3, bucket):
        deleted += count
        click.echo(f"{deleted} versions deleted", file=sys.stderr)
    clients.s3.delete_bucket(Bucket=bucket)
    if as_json:
        print_json(region=clients.region, bucket=bucket, versions=deleted)
    else:
        print(f"deleted {bucket}, {deleted} versions")
    return 0


def _list(clients: Clients, cluster: str | None, *, as_json: bool) -> int:
    made = [bucket for bucket in made_buckets(clients.tagging) if cluster in (None, bucket.cluster)]
    buckets = sorted(made, key=lambda bucket: bucket.name)
    used = used_by_stacks(clients.cloudformation) if buckets else {}
    if as_json:
        documents = [
            {"name": bucket.name, "cluster": bucket.cluster, "used_by": used.get(bucket.name)} for bucket in buckets
        ]
        print_json(region=clients.region, buckets=documents)
        return 0
    if not buckets:
        who = "no cluster" if cluster is None else f"no cluster {printable(cluster)!r}"
        print(f"dlcluster: {who} has made a bucket in {clients.region}", file=sys.stderr)
        return 0
    print_table(COLUMNS, [(bucket.name, bucket.cluster, used.get(bucket.name, "")) for bucket in buckets])
    return 0


def _find(clients: Clients, name: str) -> Bucket:
    for bucket in made_buckets(clients.tagging):
        if bucket.name == name:
            return bucket
    raise ClusterError(f"no bucket {name} in {clients.region} that a cluster made: delete another with aws s3")


def _ask(bucket: Bucket) -> None:
    """Ask the user to retype the name. Raises UsageError without a terminal, ClusterError for a wrong answer."""
    if not sys.stdin.isatty() or not is_terminal():
        raise UsageError("cannot prompt without a terminal: use --yes")
    question = f"Delete {bucket.name} of cluster {bucket.cluster}, with every version, for good? Type its name"
    if click.prompt(question).strip() != bucket.name:
        raise ClusterError("nothing was deleted")
