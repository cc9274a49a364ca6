"""Test that jobs start on real nodes without compiling, and reach every node."""

import re

import pytest

from tests.e2e.support.deployed_cluster import NODES, DeployedCluster, aliases

RELEASE = "/opt/deeplearning/current"
PYTHON = "/usr/bin/python3 -I -S -v"


@pytest.mark.parametrize("alias", aliases())
@pytest.mark.parametrize("program", ["launcher/runner/__main__.py </dev/null", "launcher/__main__.py --bogus"])
def test_job_start_compiles_no_module(cluster: DeployedCluster, alias: str, program: str) -> None:
    output = cluster.on(alias, f"{PYTHON} {RELEASE}/{program} 2>&1 | tr -d '\\0' || true")
    loaded = [line.split("'")[1] for line in output.splitlines() if line.startswith("# code object from '/opt/")]
    compiled = re.compile(r"launcher/transport/__pycache__/protocol\.cpython-\d+\.pyc$")
    assert any(compiled.search(name) for name in loaded)
    assert [name for name in loaded if not name.endswith(".pyc")] == []


def test_command_runs_once_per_node_with_the_clusters_key(cluster: DeployedCluster) -> None:
    output = cluster.on("deeplearning-master", "launch 'echo $RANK'")
    assert sorted(output.splitlines()) == [f"{alias} [0] {rank}" for rank, alias in enumerate(aliases())]
    assert len(output.splitlines()) == NODES
