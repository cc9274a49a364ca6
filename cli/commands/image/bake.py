"""``dlcluster bake``: make an image of a worker whose setup has run, and write it to cdk.json."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from bootstrap.contract import SETUP_HASH_LENGTH
from cli.aws.clusters import deployed_setup
from cli.cdk.context import cdk_option, read_context, read_props
from cli.cdk.deploy import set_and_deploy
from cli.cluster_lock import BAKE_ID, Lock
from cli.command import cluster_command
from cli.errors import UsageError
from cli.image.bake import bake
from cli.image.baked_workers import terminating_after
from cli.image.images import find_image, wait_for_image
from cli.image.worker import newest_node
from cli.output import json_option, print_json
from cli.shared_options import Selection
from cli.signals import interruptible
from cli.ssh.master import connect_to_master

SETTING: Final = "ami"


@cluster_command("bake", examples=("dlcluster bake", "dlcluster bake --yes --json", "dlcluster bake -c key_name=me"))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cdk_option
@json_option
def command(selection: Selection, *, yes: bool, cdk_options: tuple[str, ...], as_json: bool) -> int:
    """Make an image of a worker whose setup has run, and write it to ./cdk.json as the setting ami.

    Nodes that are launched after the next cdk deploy have what the setup installed, and whatever jobs changed on that
    worker; only a new master runs the setup again. The image is of the most recently launched worker that has the
    setup. That worker leaves the cluster and is replaced; its keys, home directories, logs and node state are removed,
    and it is terminated once the image is available. bake is refused while a job or another bake runs. A second run
    completes one that was interrupted, and takes an image of the same setup that exists. Run it in the directory of cdk
    deploy, with the -c options of your deploys.
    """
    if any(pair.partition("=")[0] == SETTING for pair in cdk_options):
        raise UsageError(f"-c {SETTING} cannot be combined with bake, which sets it")
    props = read_props(read_context(Path.cwd(), cdk_options))
    if selection.cluster not in (None, props.cluster_name):
        raise UsageError(f"cdk.json is for cluster {props.cluster_name}, not for --cluster {selection.cluster}")
    chosen = replace(selection, cluster=props.cluster_name)
    with interruptible(), connect_to_master(chosen) as (context, connection):
        ec2, name, setup = context.clients.ec2, context.cluster.name, deployed_setup(context.cluster)
        caller = context.clients.sts.get_caller_identity()["Arn"]
        lock = Lock(clients=context.clients, name=name, caller=caller, command=BAKE_ID)
        lock.acquire_or_renew()
        try:
            image_id = find_image(ec2, newest_node(context), cluster_name=name, sha256=setup.sha256)
            worker = None
            if image_id is None:
                image_id, worker = bake(context, connection, setup, lock, yes=yes)
            else:
                # A bake that was killed may have left its worker, whose disk is erased.
                with terminating_after(ec2, lock, cluster_name=name):
                    wait_for_image(ec2, image_id, keep_alive=lock.acquire_or_renew)
        finally:
            lock.release()
    set_and_deploy(SETTING, image_id, cdk_options=cdk_options, region=context.clients.region, deploy=False)
    if as_json:
        print_json(cluster=name, ami=image_id, sha256=setup.sha256, instance_id=worker)
    else:
        print(f"{image_id} has setup {setup.sha256[:SETUP_HASH_LENGTH]}")
    end = "once no cluster uses it, delete both"
    delete = f"aws ec2 deregister-image --delete-associated-snapshots --image-id {image_id}"
    print(f"dlcluster: EBS bills its snapshot per GB and month; {end}: {delete}", file=sys.stderr)
    return 0
