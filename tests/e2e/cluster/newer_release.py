"""Edit a copy of the project into a later release, and read which releases run."""

from pathlib import Path

from bootstrap.contract import RELEASE_HASH_LENGTH, VERSION
from tests.e2e.cluster.cluster_state import ClusterState
from tests.e2e.support.checkouts import Edit
from tests.e2e.support.deployed_cluster import STACK, DeployedCluster

SIGN = "a newer agent"
NEWER_VERSION = "99.0.0"
NEWER = (
    Edit(
        file="bootstrap/contract.py", old=f'\nVERSION: Final = "{VERSION}"', new=f'\nVERSION: Final = "{NEWER_VERSION}"'
    ),
    Edit(file="bootstrap/agent_service.py", old='"agent of a %s', new=f'"{SIGN} of a %s'),
    Edit(
        file="bootstrap/cluster/table.py",
        old='HOST_KEY_FIELD: {"S": record.host_key},',
        new=f'HOST_KEY_FIELD: {{"S": record.host_key}}, "made_by": {{"S": "{SIGN}"}},',
    ),
    Edit(
        file="bootstrap/cluster/table.py",
        old='MEMBERS_FIELD: {"S": members_to_json(new.members)},',
        new=f'MEMBERS_FIELD: {{"S": members_to_json(new.members)}}, "made_by": {{"S": "{SIGN}"}},',
    ),
    Edit(
        file="bootstrap/cluster/membership.py",
        old="[member_row(member) for member in members]",
        new=f'[member_row(member) | {{"made_by": "{SIGN}"}} for member in members]',
    ),
)
"""Edits for a later release, whose agent writes more into each record and logs another name."""


def shown_release(state: ClusterState, alias: str, version: str) -> str:
    bundle = Path(state.identities[alias].release).name
    return f"{version} ({bundle[:RELEASE_HASH_LENGTH]})"


def release_line(cluster: DeployedCluster, checkout: Path) -> str:
    """Return what a checkout's ``dlcluster status`` says about releases."""
    printed = cluster.user.output(str(checkout / "bin/dlcluster"), "status", "--cluster", STACK)
    [line] = [line for line in printed.splitlines() if line.startswith("releases differ: ")]
    return line.removeprefix("releases differ: ")
