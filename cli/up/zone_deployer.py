"""Deploy to move both groups to a zone while they are empty, and to record the zone once the nodes are up."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.contract import CLUSTER_NAME_OUTPUT, IMMUTABLE_ZONE, NO_ZONE
from cli.aws.clients import Clients
from cli.aws.clusters import Cluster, find_cluster
from cli.aws.stack_history import describe_stack
from cli.cdk.context import APP_FILE
from cli.cdk.deploy import deploy_command, require_cdk, run_deploy
from cli.cdk.settings_file import write_setting
from cli.cluster_lock import Lock
from cli.errors import ClusterError
from cli.node_groups.groups import instance_ids, is_paused, read_groups

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef

ZONE: Final = "availability_zone"
SETTLE_TIMEOUT_S: Final = 2700.0
"""Timeout for a deploy that an earlier run started, in seconds, if the nodes have no setup."""
POLL_S: Final = 5.0
_CHANGE_SET_ONLY: Final = "REVIEW_IN_PROGRESS"


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneDeployer:
    """Deployment of the cluster of ./cdk.json with its nodes in a given zone."""

    clients: Clients
    name: str
    zones: tuple[str, ...]
    lock: Lock
    cdk_options: Sequence[str] = ()
    """The -c options of the user's deploys."""
    settle_timeout_s: float = SETTLE_TIMEOUT_S

    def wait_for_settled_stack(self) -> "StackTypeDef | None":
        """Wait for a deploy that an earlier run started, and return the stack. Raises ClusterError."""
        deadline, last_status = time.monotonic() + self.settle_timeout_s, ""
        while True:
            stack = describe_stack(self.clients.cloudformation, self.name)
            status = stack["StackStatus"] if stack else ""
            if status.startswith("DELETE_"):
                advice = "wait until it is gone, then run dlcluster up to create it again"
                raise ClusterError(f"stack {self.name} is {status}: {advice}")
            if not status.endswith("_IN_PROGRESS") or status == _CHANGE_SET_ONLY:
                return stack
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {self.settle_timeout_s:.0f} s for stack {self.name}, which is {status}")
            if status != last_status:
                print(f"dlcluster: waiting for stack {self.name}, which is {status}", file=sys.stderr)
                last_status = status
            time.sleep(POLL_S)

    def find_cluster(self) -> Cluster:
        """Return the deployed stack's cluster. Raises ClusterError."""
        clients = self.clients
        return find_cluster(clients.cloudformation, name=self.name, region=clients.region)

    def move(self, zone: str) -> None:
        """Move the empty groups to this zone.

        Deploy with it first in ``zones``, because the template places them in the first candidate until a zone is
        pinned.
        """
        if is_created(describe_stack(self.clients.cloudformation, self.name)):
            self.lock.acquire_or_renew()
            groups = read_groups(self.clients.autoscaling, self.name)
            if instance_ids(groups) or not is_paused(groups):
                advice = "run dlcluster up again to continue"
                raise ClusterError(f"{self.name} has nodes now, which a deploy cannot move: {advice}")
        others = [candidate for candidate in self.zones if candidate != zone]
        cdk_options = [*self.cdk_options, f"zones={','.join((zone, *others))}", f"{ZONE}="]
        self._deploy(cdk_options, self._zone_parameter_override(NO_ZONE))

    def deploy_in(self, zone: str) -> None:
        """Write the zone to cdk.json and deploy: the template then declares the nodes that run there."""
        self.lock.acquire_or_renew()
        self.write_zone(zone)
        self._deploy(self.cdk_options, self._zone_parameter_override(zone))

    def write_zone(self, zone: str) -> None:
        """Write the zone to cdk.json; without it, a later deploy would be refused."""
        write_setting(Path.cwd() / APP_FILE, ZONE, zone)

    def clear_zone(self) -> None:
        """Remove the zone from cdk.json, because the nodes may start in another."""
        write_setting(Path.cwd() / APP_FILE, ZONE, None)

    def _zone_parameter_override(self, value: str) -> Mapping[str, str]:
        """Return the parameter that otherwise keeps the zone immutable; none before the stack exists."""
        return dict.fromkeys(zone_parameters(describe_stack(self.clients.cloudformation, self.name)), value)

    def _deploy(self, cdk_options: Sequence[str], parameters: Mapping[str, str]) -> None:
        require_cdk()
        if status := run_deploy(deploy_command(cdk_options, parameters), region=self.clients.region):
            raise ClusterError(
                f"cdk deploy failed with exit code {status}: fix the error above and run dlcluster up again "
                "(dlcluster why says more)"
            )


def is_created(stack: "StackTypeDef | None") -> bool:
    """Return True if the stack was created; one whose creation fails has no outputs."""
    return stack is not None and CLUSTER_NAME_OUTPUT in {output.get("OutputKey") for output in stack.get("Outputs", [])}


def zone_parameters(stack: "StackTypeDef | None") -> dict[str, str]:
    """Return the stack's parameter that makes the zone immutable, with its value."""
    parameters = stack.get("Parameters", []) if stack else []
    values = {parameter.get("ParameterKey", ""): parameter.get("ParameterValue", "") for parameter in parameters}
    return {key: value for key, value in values.items() if f"{IMMUTABLE_ZONE}CreatedWith" in key}


def has_zone(stack: "StackTypeDef") -> bool:
    """Return True if the deployed template names the zone of the nodes."""
    return NO_ZONE not in zone_parameters(stack).values()
