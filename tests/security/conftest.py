"""Deploy the product's stack to a control plane that authorizes calls, without booting nodes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from local.control_plane.ec2.images import FAMILIES, image_id
from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack
from tests.local.control_plane.harness import REGION, Aws, Stacks, serving
from tests.security.cluster import ABUSED, ACCOUNT, Node, RoleCluster
from tests.security.user_resources import DATA, DATA_KEY, KMS_KEY, RESULTS, SECRET_KEY, TOOLKIT_BUCKET, Deploy

REPOSITORY = Path(__file__).resolve().parents[2]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "abuses(grants): what of a role the test abuses")


@pytest.fixture(scope="package")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with serving(tmp_path_factory.mktemp("aws") / "requests.jsonl") as aws:
        yield aws


@pytest.fixture(scope="package")
def deploy(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Deploy:
    """Deploy the product's own stack until its groups wait for the nodes' signals."""
    context = json.loads((REPOSITORY / "cdk.json").read_text())["context"]
    aws.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    aws.client("s3").create_bucket(Bucket=TOOLKIT_BUCKET)
    setup = tmp_path_factory.mktemp("setup") / "setup.sh"
    setup.write_text("#!/bin/bash\n")

    def run(name: str, **more: Any) -> RoleCluster:
        outdir = tmp_path_factory.mktemp("cdk.out")
        app = cdk.App(context=context, outdir=str(outdir), builtin_cloud_formation_validation=False)
        settings: dict[str, Any] = {
            "cluster_name": name,
            "worker_count": 2,
            "instance_type": "c5.large",
            "ami": image_id(FAMILIES[0]),
            "shared_storage": "efs",
            "secrets": ("ssm:/team/wandb", "ssm:/team/other-key", "secretsmanager:team/hub"),
            "secret_keys": (SECRET_KEY,),
            "data_buckets": (f"{DATA}/vision", f"{RESULTS}/ours:rw"),
            "data_keys": (DATA_KEY,),
            "setup": str(setup),
            "kms_key": KMS_KEY,
            "idle_stop": "30m",
        }
        props = ClusterProps(**settings | more)
        env = cdk.Environment(account=ACCOUNT, region=REGION)
        ClusterStack(app, "ClusterStack", props=props, env=env)
        app.synth()
        template = json.loads((outdir / "ClusterStack.template.json").read_text())
        cluster = RoleCluster(aws=aws, name=name, stacks=Stacks(aws=aws), template=template)
        cluster.create()
        return cluster

    return run


@pytest.fixture(scope="package")
def cluster(deploy: Deploy) -> RoleCluster:
    """Deploy a cluster and complete it."""
    made = deploy("deeplearning")
    made.complete()
    for bucket, key in ((made.names["BUCKET"], "others/checkpoint"), (TOOLKIT_BUCKET, "other.zip")):
        made.aws.client("s3").put_object(Bucket=bucket, Key=key, Body=b"theirs")
    for key, content in ((made.bundle, b"bundle"), (made.setup, b"setup")):
        made.aws.client("s3").put_object(Bucket=TOOLKIT_BUCKET, Key=key, Body=content)
    return made


@pytest.fixture
def worker(cluster: RoleCluster) -> Node:
    """Return a stolen worker: the attacker's programs use its role."""
    return cluster.node("worker")


@pytest.fixture
def master(cluster: RoleCluster) -> Node:
    return cluster.node("master")


@pytest.fixture(params=["master", "worker"])
def node(request: pytest.FixtureRequest, cluster: RoleCluster) -> Node:
    """Return a node of each type, for what both may do."""
    return cluster.node(request.param)


@pytest.fixture(autouse=True)
def _shows_both_sides(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that a test of a grant makes a call that it allows, and a refused one to the same service."""
    marker = request.node.get_closest_marker("abuses")
    if marker is None:
        yield
        return
    name = next(name for name in ("worker", "master", "node", "young_node") if name in request.fixturenames)
    node: Node = request.getfixturevalue(name)
    before = len(node.lines())
    yield
    lines = node.lines()[before:]
    for grant in marker.args:
        assert grant in ABUSED[node.type]
        assert any(node.grants[grant].allows_one(line) for line in lines), f"no call that {grant!r} allows"
        service = f"{grant.partition(':')[0]}:"
        refused = [line["refused"]["action"] for line in lines if "refused" in line]
        assert any(action.startswith(service) for action in refused), f"no refused call to {service}"
