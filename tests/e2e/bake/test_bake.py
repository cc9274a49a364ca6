"""Bake an image on real nodes: it has the setup and nothing of the node, and its nodes run no setup again.

``make soak`` runs it: it deploys a cluster of its own.
"""

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bootstrap.contract import CLUSTER_TAG, TABLE_KEY, TABLE_OUTPUT
from cli.cluster_lock import BAKE_ID
from cli.errors import EXIT_FAILED
from launcher.runner.sync.sync_state import RECORDS_DIR
from local.faults import Faults
from local.faults.clients import client
from local.node.disks import IMAGES
from tests.e2e.bake.setup_runs import has_run
from tests.e2e.support.deployed_cluster import NODES, STACK, aliases, node_disk, stack_outputs
from tests.e2e.support.laptop import COMMAND_S, Laptop

pytestmark = pytest.mark.soak

TRACES = """
set -eu
mkdir -p ~/.aws ~/notes
echo {trace} > ~/.bash_history
echo {trace} > ~/.aws/credentials
echo {trace} > ~/notes/results
echo {trace} | sudo tee /root/.bash_history /tmp/{trace} /var/tmp/{trace} /var/log/{trace}.log
echo {trace} | sudo tee /usr/local/share/installed-by-hand
"""
"""What a user leaves; the last file is software as far as anybody can tell, and stays."""
NO_NAMES = ("authorized_keys", ".bash_history", "credentials", "node.json", "workers", "setup.log")
NO_SUFFIXES = ("_key", "_key.pub", "history", ".log")


REFUSAL = re.compile(
    r".+ is running dlcluster bake for deeplearning on .+, last seen at \d\d:\d\d: wait until it ends, .+\n"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Baked:
    """Hold the image, and what must not be in it."""

    image_id: str
    worker: str
    """ID of the instance that the image was made of."""
    installed: str
    """What its setup has written."""
    host_key: str
    forbidden: dict[str, bytes]
    skeleton: frozenset[str]
    """Paths in a new user's home, relative to it."""
    refusal: str
    """Output of the second of two bakes that started at the same time."""


def bake_twice(laptop: Laptop) -> tuple[dict[str, Any], str]:
    """Start two bakes at once; return what the one that worked told, and what the other one printed."""

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["dlcluster", "bake", "--yes", "--json"],
            cwd=laptop.checkout,
            env=dict(laptop.user.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with start() as one, start() as other:
        try:
            ended = [(*process.communicate(timeout=COMMAND_S), process.returncode) for process in (one, other)]
        finally:
            for process in (one, other):
                process.kill()
    assert sorted(code for _, _, code in ended) == [0, EXIT_FAILED], ended
    (told, _, _), (nothing, refusal, _) = sorted(ended, key=lambda each: each[2])
    assert nothing == ""
    return json.loads(told), refusal


@pytest.fixture(scope="module")
def baked(laptop: Laptop) -> Baked:
    ids = Faults.current().instances(STACK)
    described = client("ec2").describe_instances(InstanceIds=list(ids.values()))["Reservations"]
    launched = {
        instance["InstanceId"]: instance["LaunchTime"] for found in described for instance in found["Instances"]
    }
    # The worker that was launched last becomes the image.
    index = max(range(2, NODES + 1), key=lambda each: (launched[ids[each]], each))
    worker = ids[index]
    trace = f"trace-{uuid.uuid4().hex}"
    alias = f"worker{index}"
    project = laptop.checkout / "examples"
    # A job leaves its working copy, its logs and the index of a sync on each node.
    (project / "marked.py").write_text(f"print({trace!r})\n")
    laptop.run("bash", "-c", "cd examples && dlcluster run --nproc-per-node 1 -- marked.py")
    assert ".json" in laptop.on(alias, f"ls {RECORDS_DIR}"), "the sync left no record"
    skeleton = laptop.on(alias, "cd /etc/skel && find . -mindepth 1 -printf '%P\\n'").splitlines()
    laptop.on(alias, TRACES.format(trace=trace))
    found = laptop.on(alias, "cat /srv/installed; cat /etc/machine-id; hostname -I; hostname")
    installed, machine_id, address, host = found.splitlines()
    key = (node_disk(worker) / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[1]
    user_key = laptop.run("ssh-add", "-L").split()[1]
    cluster_key = laptop.on("master", "sudo cat /etc/deeplearning/cluster-key/id_ed25519.pub").split()[1]
    told, refusal = bake_twice(laptop)
    assert told["instance_id"] == worker
    secrets = {
        "trace of its user": trace,
        "instance": worker,
        "machine": machine_id,
        "address": address.strip(),
        "host name": host,
        "host key": key,
        "key of its user": user_key,
        "key of the cluster": cluster_key,
    }
    forbidden = {what: text.encode() for what, text in secrets.items()}
    return Baked(
        image_id=told["ami"],
        worker=worker,
        installed=installed,
        host_key=key,
        forbidden=forbidden,
        skeleton=frozenset(skeleton),
        refusal=refusal,
    )


def layer_of(image_id: str) -> Path:
    """Return the directory with what the image has above Amazon's."""
    return Path(os.environ["LOCAL_AWS_DIR"], IMAGES, image_id, "disk/upper")


def files_of(image_id: str) -> Iterator[tuple[str, bytes]]:
    """Yield each file that the image has above Amazon's, with its content."""
    root = layer_of(image_id)
    for path in root.rglob("*"):
        if path.is_symlink() or path.is_file():
            yield f"/{path.relative_to(root)}", os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()


def test_image_has_the_setup_and_no_node_state(baked: Baked) -> None:
    files = dict(files_of(baked.image_id))
    assert files["/srv/installed"].decode().splitlines() == [baked.installed]
    assert "/var/lib/deeplearning/setup-done" in files
    by_hand = files.pop("/usr/local/share/installed-by-hand")
    assert by_hand.strip() == baked.forbidden["trace of its user"]
    # The script itself writes the host's name there.
    del files["/srv/installed"]
    told = [
        f"{what} in {name}" for name, content in files.items() for what, it in baked.forbidden.items() if it in content
    ]
    named = [name for name in files if name.rsplit("/", 1)[1] in NO_NAMES or name.endswith(NO_SUFFIXES)]
    assert (told, named) == ([], [])
    assert files["/etc/machine-id"] == b""


def test_homes_have_only_what_a_new_user_gets(baked: Baked) -> None:
    root = layer_of(baked.image_id)
    homes = [root / "root", *(root / "home").iterdir()]
    assert root / "home/ubuntu" in homes
    # A device is overlayfs's mark of a file of Amazon's image that was deleted.
    files = {path: path.relative_to(home) for home in homes for path in home.rglob("*") if not path.is_char_device()}
    more = [f"/{path.relative_to(root)}" for path, name in files.items() if str(name) not in baked.skeleton]
    assert more == [], "records of syncs and jobs, working copies, histories"


def test_second_bake_at_the_same_moment_is_refused_and_harms_nothing(baked: Baked) -> None:
    assert REFUSAL.fullmatch(baked.refusal), baked.refusal
    made = client("ec2").describe_images(Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [STACK]}])["Images"]
    assert [image["ImageId"] for image in made] == [baked.image_id]
    key: Any = {TABLE_KEY: {"S": BAKE_ID}}
    record = client("dynamodb").get_item(TableName=stack_outputs()[TABLE_OUTPUT], Key=key, ConsistentRead=True)
    assert "Item" not in record, "the owner's record goes with its bake"


def test_baked_worker_is_replaced_and_no_other_instance_is_left(laptop: Laptop, baked: Baked) -> None:
    assert laptop.settings["ami"] == baked.image_id
    running = client("ec2").describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])
    ids = {instance["InstanceId"] for reservation in running["Reservations"] for instance in reservation["Instances"]}
    assert baked.worker not in ids
    assert len(ids) == NODES
    (image,) = client("ec2").describe_images(ImageIds=[baked.image_id])["Images"]
    tags = {tag["Key"]: tag["Value"] for tag in image["Tags"]}
    assert tags["deeplearning:cluster"] == STACK
    assert laptop.run("dlcluster", "bake").startswith(baked.image_id), "the image that exists is taken"


def test_worker_from_the_image_skips_the_setup_and_a_master_runs_it(laptop: Laptop, baked: Baked) -> None:
    laptop.run("cdk", "deploy")
    # The image of a worker also makes a master.
    for node_index, host in ((2, "worker2"), (1, "master")):
        new = laptop.replace(node_index, is_back=has_run)
        (instance,) = client("ec2").describe_instances(InstanceIds=[new])["Reservations"][0]["Instances"]
        assert instance["ImageId"] == baked.image_id
        installed, *log = laptop.on(host, "head -1 /srv/installed; cat /var/log/deeplearning/setup.log").splitlines()
        assert installed == baked.installed
        # A setup may do other things on a master.
        is_run = host == "master"
        assert any(line.endswith(" was done before") for line in log) != is_run
        assert any("setup.sh:" in line for line in log) == is_run, log
        key = (node_disk(new) / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[1]
        assert key != baked.host_key
        assert laptop.on(host, "cat /etc/machine-id").encode().strip() not in (b"", baked.forbidden["machine"])
    laptop.wait_for_job_on(*aliases())
