"""Provide a cluster with three candidate zones on the local control plane, and stand-ins for the CDK and agents."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cli.aws.clients import Clients
from cli.cluster_lock import Lock
from tests.cli.sizes.conftest import clients, local_aws
from tests.cli.up.up_cluster import GONE, SETTINGS, UpCluster, note_changes
from tests.local.aws.harness import REGION, AccountLimits, Aws, Stacks

__all__ = ["clients", "local_aws"]


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
    for name, value in {**variables, "AWS_REGION": REGION, "AWS_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("cdk.json").write_text(json.dumps({"context": {"cluster": SETTINGS}}))
    made = UpCluster(aws=local_aws, stacks=Stacks(aws=local_aws))
    monkeypatch.setattr("cli.sizes.waiting.time.sleep", made.write_members)
    monkeypatch.setattr("cli.cdk.deploy.subprocess.run", made.cdk)
    monkeypatch.setattr("cli.up.zone_deployer.require_cdk", lambda: None)
    monkeypatch.setattr("cli.cluster_lock._boot", lambda: "boot")
    monkeypatch.setattr("cli.commands.cluster.up.Lock", partial(Lock, pid=GONE))
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
