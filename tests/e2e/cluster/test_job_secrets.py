"""Give ranks secrets of the account from the laptop, and search for the values everywhere they must not be."""

import gzip
import hashlib
import io
import json
import subprocess
import time
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from bootstrap.contract import VERSION
from local.faults.clients import client
from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster, aliases, node_disk, stack_outputs

SCRIPT = """\
import hashlib, os, time
both = os.environ["WANDB_API_KEY"] + os.environ["HUB_TOKEN"]
print("digest", hashlib.sha256(both.encode()).hexdigest(), flush=True)
time.sleep(1000)
"""
STARTED_S = 120.0
TOOLKIT = "CDKToolkit"
"""Stack of `cdk bootstrap`, whose bucket has the templates and what nodes fetch."""
REFERENCE = "ssm:/team/wandb"
RUN = ("run", "--detach", "--secret", f"WANDB_API_KEY={REFERENCE}", "--secret")


@pytest.fixture(scope="module")
def values() -> list[str]:
    """Store two secrets and return their values."""
    made = [uuid.uuid4().hex, uuid.uuid4().hex]
    boto3.client("ssm").put_parameter(Name="/team/wandb", Value=made[0], Type="SecureString")
    boto3.client("secretsmanager").create_secret(Name="team/hub", SecretString=made[1])
    return made


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("laptop") / "with-secrets"
    directory.mkdir()
    (directory / "train.py").write_text(SCRIPT)
    return directory


def dlcluster(cluster: DeployedCluster, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["dlcluster", *words], cwd=project, env=dict(cluster.user.environment),
        capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--durable",)], ids=["detached", "durable"])
def test_ranks_have_secrets_that_are_nowhere_else(
    cluster: DeployedCluster, project: Path, values: list[str], options: tuple[str, ...]
) -> None:
    started = dlcluster(cluster, project, *RUN, "HUB_TOKEN=secretsmanager:team/hub", *options, "--", "train.py")
    assert started.returncode == 0, started.stderr
    job = started.stdout.strip()
    try:
        digest = hashlib.sha256("".join(values).encode()).hexdigest()
        deadline = time.monotonic() + STARTED_S
        while (found := dlcluster(cluster, project, "logs", job).stdout.count(f"digest {digest}")) < NODES:
            assert time.monotonic() < deadline, f"waited {STARTED_S:.0f} s for {NODES} ranks, {found} came"
            time.sleep(0.5)
        for alias in aliases():
            assert found_on_node(cluster, alias, values) == ["environ"]
        running = stored_texts()
    finally:
        stopped = dlcluster(cluster, project, "stop", job)
    assert stopped.returncode == 0, stopped.stderr
    pattern = project.with_name("pattern")
    pattern.write_text("\n".join(values))
    for instance_id in cluster.addresses:
        assert files_with(pattern, node_disk(instance_id)) == ""
    ended = stored_texts()
    durable = f"jobs/{STACK}/durable/{job}.json"
    # A new master reads the reference there, and the bucket keeps the version.
    assert [REFERENCE in texts.get(durable, "") for texts in (running, ended)] == [bool(options)] * 2
    assert f"jobs/{STACK}/{job}.json" in ended
    kept = json.dumps([dlcluster(cluster, project, "jobs", "--json").stdout, running, ended])
    assert not [value for value in values if value in kept]


def found_on_node(cluster: DeployedCluster, alias: str, values: list[str]) -> list[str]:
    """Return where in memory, of processes and of files, a value is; the brackets keep this line from matching."""
    pattern = "|".join(f"[{value[0]}]{value[1:]}" for value in values)
    look = f"cat /proc/[0-9]*/$place 2>/dev/null | tr '\\0' '\\n' | grep -qE '{pattern}' && echo $place"
    line = f"for place in cmdline environ; do {look}; done; grep -rlsE '{pattern}' /run /dev/shm /tmp; true"
    return cluster.on(alias, f'sudo sh -c "{line.replace("$", chr(92) + "$")}"').split()


def files_with(pattern: Path, directory: Path) -> str:
    command = ["grep", "-rlasF", "-f", str(pattern), str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout


def stored_texts() -> dict[str, str]:
    """Return what AWS stores of the cluster: template, records, logs, and all versions of objects and assets."""
    outputs = stack_outputs()
    template = client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
    records = boto3.client("dynamodb").scan(TableName=outputs["ClusterTable"])["Items"]
    pages = boto3.client("logs").get_paginator("filter_log_events").paginate(logGroupName=outputs["ClusterLogGroup"])
    events = [event for page in pages for event in page["events"]]
    assert records
    assert events
    found = {"template": json.dumps(template), "records": str(records), "events": str(events)}
    assets = [*object_texts(stack_outputs(TOOLKIT)["BucketName"])]
    assert {key.rpartition(".")[2] for key, _ in assets} == {"json", "zip"}, "templates and what nodes fetch"
    for key, text in (*object_texts(outputs["ClusterBucket"]), *assets):
        found[key] = found.get(key, "") + text
    return found


def object_texts(bucket: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the unpacked content of every version of a bucket's objects."""
    s3 = boto3.client("s3")
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for version in page.get("Versions", []):
            body = s3.get_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])["Body"].read()
            yield version["Key"], unpacked(version["Key"], body).decode(errors="replace")


def unpacked(key: str, body: bytes) -> bytes:
    if key.endswith(".gz"):
        return gzip.decompress(body)
    if key.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            return b"".join(archive.read(name) for name in archive.namelist())
    return body


def test_missing_secret_starts_nothing(cluster: DeployedCluster, project: Path) -> None:
    started = dlcluster(cluster, project, *RUN, "MISSING=ssm:/team/absent", "--", "train.py")
    assert (started.returncode, started.stdout) == (1, "")
    [line] = [line for line in started.stderr.splitlines() if "did not start" in line]
    assert "nothing started: deeplearning-worker" in line
    assert line.endswith(": ssm:/team/absent: is not there")


def test_status_shows_the_same_release_for_stack_and_nodes(cluster: DeployedCluster, project: Path) -> None:
    found = json.loads(dlcluster(cluster, project, "status", "--json").stdout)
    assert found["release"] | {"stack": ""} == {"dlcluster": VERSION, "stack": "", "differences": []}
    assert {node["release"] for node in found["nodes"]} == {found["release"]["stack"]}
    bundle = cluster.on(aliases()[-1], "basename $(readlink -f /opt/deeplearning/current)")
    assert found["release"]["stack"] == f"{VERSION}:{bundle[:12]}"
