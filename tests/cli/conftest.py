"""Provide an account in moto and a local control plane, and clusters in them."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import click
import pytest
from botocore.session import Session
from moto.moto_api._internal.models import moto_api_backend
from moto.server import ThreadedMotoServer

from cli.aws.clients import Clients
from cli.cluster_lock import Lock
from tests.cli.json_page import undocumented_keys
from tests.cli.moto_cluster import KEY, REGION, Deploy, MotoCluster, put_membership, run_instances, template
from tests.cli.up.up_cluster import DEAD_PID, SETTINGS, UpCluster, note_changes
from tests.local.control_plane.harness import REGION as LOCAL_REGION
from tests.local.control_plane.harness import AccountLimits, Aws, Stacks, serving
from tests.service_models import shared_models


@pytest.fixture(autouse=True, scope="session")
def _shared_models() -> Iterator[None]:
    with shared_models():
        yield


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty home, without the user's own .cdk.json."""
    directory = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(directory))
    return directory


@pytest.fixture(autouse=True)
def _documented_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when a command prints a key that docs/dlcluster-json.md does not name for it."""

    def dumps(document: dict[str, Any], **options: Any) -> str:
        command = click.get_current_context().command.name or ""
        assert {*undocumented_keys(command, document)} == set()
        return json.dumps(document, **options)

    monkeypatch.setattr("cli.output.json", SimpleNamespace(dumps=dumps))


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://localhost:{port}"
    server.stop()


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Empty the account, and return the variables that lead to it."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        # A thousand images, which every reset would read and every query would return.
        "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    }
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    moto_api_backend.reset()
    yield variables
    moto_api_backend.reset()


@pytest.fixture
def deploy(aws: dict[str, str]) -> Deploy:
    """Deploy a cluster as its stack and its agents leave it."""

    def deploy(
        name: str = "demo",
        *,
        user: str = "ubuntu",
        public: str = "203.0.113.5",
        is_private: bool = False,
        private: Sequence[str] = ("10.0.0.10", "10.0.1.20", "10.0.1.30"),
        host_keys: Sequence[str] = (KEY, KEY, KEY),
    ) -> MotoCluster:
        cloudformation = boto3.client("cloudformation", region_name=REGION)
        cloudformation.create_stack(StackName=f"{name}-stack", TemplateBody=template(name, user, is_private=is_private))
        outputs = cloudformation.describe_stacks(StackName=f"{name}-stack")["Stacks"][0]["Outputs"]
        table = next(out["OutputValue"] for out in outputs if out["OutputKey"] == "ClusterTable")
        ids = run_instances(name, private, None if is_private else public)
        put_membership(table, ids, private=private, host_keys=host_keys)
        return MotoCluster(name=name, table=table, instance_ids=ids)

    return deploy


@pytest.fixture(scope="session")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with serving(tmp_path_factory.mktemp("aws") / "requests.jsonl") as aws:
        yield aws


@pytest.fixture(scope="session")
def clients(local_aws: Aws) -> Clients:
    """Return clients for all tests, because botocore takes a tenth of a second to create one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", local_aws.url)
        session = Session()
        session.set_credentials("test", "test")
        session.set_config_variable("region", LOCAL_REGION)
        made = Clients(session, LOCAL_REGION)
        assert all((made.autoscaling, made.cloudformation, made.dynamodb, made.ec2))
    return made


@pytest.fixture
def limits(local_aws: Aws) -> Iterator[AccountLimits]:
    yield AccountLimits(file=local_aws.capacities, quotas=local_aws.quotas)
    local_aws.capacities.unlink(missing_ok=True)
    local_aws.quotas.unlink(missing_ok=True)


@pytest.fixture
def cluster(
    local_aws: Aws, clients: Clients, limits: AccountLimits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[UpCluster]:
    """Return a cluster that is not deployed yet; zones a and b have too little capacity."""
    variables = {"AWS_ENDPOINT_URL": local_aws.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**variables, "AWS_REGION": LOCAL_REGION, "AWS_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("cdk.json").write_text(json.dumps({"context": {"cluster": SETTINGS}}))
    made = UpCluster(aws=local_aws, stacks=Stacks(aws=local_aws))
    monkeypatch.setattr("cli.node_groups.waiting.time.sleep", made.write_members)
    monkeypatch.setattr("cli.cdk.deploy.subprocess.run", made.cdk)
    monkeypatch.setattr("cli.up.zone_deployer.require_cdk", lambda: None)
    monkeypatch.setattr("cli.cluster_lock._boot", lambda: "boot")
    monkeypatch.setattr("cli.commands.cluster.up.Lock", partial(Lock, pid=DEAD_PID))
    # The command queries the quota before each question; one test does so too.
    monkeypatch.setattr("cli.up.requirements.require_quota", lambda _: None)

    for command in ("up", "pause", "resume", "resize"):
        monkeypatch.setattr(f"cli.commands.cluster.{command}.create_clients", lambda _: clients)
    limits.set(a=1, b=2)
    remove = note_changes(clients, made)
    yield made
    remove()
    for name in made.stacks.names:
        made.stacks.cloudformation.delete_stack(StackName=name)
