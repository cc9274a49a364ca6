"""Redeploy the cluster: with other settings, or from a modified copy of the project."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.run.user import deploy_arguments
from tests.e2e.support.deployed_cluster import NODES, DeployedCluster

REPOSITORY = Path(__file__).parents[3]
NOT_PART_OF_A_CHECKOUT = shutil.ignore_patterns(".git", "cdk.out", "tests", "docs", "__pycache__", ".*_cache")

DEPLOY_S = 900


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """Replacement of one piece of text in a file of the project."""

    file: str
    old: str
    new: str

    def make(self, checkout: Path) -> None:
        file = checkout / self.file
        text = file.read_text()
        assert text.count(self.old) == 1
        file.write_text(text.replace(self.old, self.new))


def copy_checkout(directory: Path, *edits: Edit) -> Path:
    """Copy the project below a directory and apply the edits; the CDK has no terminal on which it could ask."""
    checkout = Path(shutil.copytree(REPOSITORY, directory / "checkout", ignore=NOT_PART_OF_A_CHECKOUT))
    file = checkout / "cdk.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"requireApproval": "never"}))
    for edit in edits:
        edit.make(checkout)
    return checkout


def try_deploy(
    cluster: DeployedCluster, settings: Mapping[str, str] | None = None, *, checkout: Path = REPOSITORY
) -> "subprocess.CompletedProcess[str]":
    """Deploy with some settings changed; the result's standard output has the errors too."""
    changed = [argument for name, value in (settings or {}).items() for argument in ("-c", f"{name}={value}")]
    return subprocess.run(
        ["cdk", *deploy_arguments(nodes=NODES), *cluster.settings, *changed],
        cwd=checkout,
        env=dict(cluster.user.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=DEPLOY_S,
    )


def deploy(cluster: DeployedCluster, settings: Mapping[str, str] | None = None, *, checkout: Path = REPOSITORY) -> None:
    """Deploy with some settings changed; the deploy must succeed."""
    done = try_deploy(cluster, settings, checkout=checkout)
    assert done.returncode == 0, done.stdout
