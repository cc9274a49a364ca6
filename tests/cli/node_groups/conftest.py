"""Provide a cluster on the local control plane without nodes; the fixtures write what agents would write."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.aws.clients import Clients
from tests.cli.node_groups.nodeless_cluster import CDK_JSON, NodelessCluster
from tests.local.control_plane.harness import REGION, Aws, Stacks


@pytest.fixture
def deployed(
    local_aws: Aws, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NodelessCluster]:
    """Deploy a cluster of a master and two workers, and enter the directory from which it was deployed."""
    variables = {"AWS_ENDPOINT_URL": local_aws.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**variables, "AWS_REGION": REGION, "AWS_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("cdk.json").write_text(CDK_JSON)
    made = NodelessCluster(aws=local_aws, stacks=Stacks(aws=local_aws))
    monkeypatch.setattr("cli.node_groups.waiting.time.sleep", made.write_members)
    monkeypatch.setattr("cli.cdk.deploy.subprocess.run", made.cdk)
    for command in ("pause", "resume", "resize", "cost", "extend"):
        monkeypatch.setattr(f"cli.commands.cluster.{command}.create_clients", lambda _: clients)
    monkeypatch.setattr("cli.cluster_context.create_clients", lambda _: clients)
    made.create()
    made.write_members()
    yield made
    for name in made.stacks.names:
        made.stacks.cloudformation.delete_stack(StackName=name)
