"""Keep the served mount targets of all VPCs equal to the control plane's description."""

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from local.network import vpc_network
from local.storage.certificates import Authority
from local.storage.client_install import EXPORTS
from local.storage.efs_server import start_efs_server
from local.storage.lustre_server import start_lustre_server
from local.storage.mount_targets import MountTarget
from local.storage.name_server import start_name_server

log = logging.getLogger(__name__)


class Exports:
    """Serves mount targets, and their names, in the VPCs that have a router."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.authority = Authority(run_dir)
        self._end: dict[MountTarget, Callable[[], None]] = {}

    def start_names(self, vpc_id: str) -> Callable[[], None]:
        """Start a VPC's name server; return the function that stops it."""
        return start_name_server(vpc_id, lambda name: self._address(vpc_id, name))

    def reconcile(self, targets: Collection[MountTarget], *, vpcs: Collection[str]) -> None:
        """Stop targets that are gone and start new ones, in the VPCs that currently have a router."""
        desired = {target for target in targets if target.vpc_id in vpcs}
        for target in self._end.keys() - desired:
            self._end.pop(target)()
            if target.vpc_id in vpcs:
                vpc_network.delete_router_address(target.vpc_id, target.address)
            log.info("%s has no mount target at %s any more", target.file_system, target.address)
        for target in desired - self._end.keys():
            make_export_directory(self._run_dir, target.file_system)
            vpc_network.add_router_address(target.vpc_id, target.address)
            self._end[target] = self._serve(target)
            log.info("%s has a mount target at %s", target.file_system, target.address)

    def _serve(self, target: MountTarget) -> Callable[[], None]:
        if target.mount_name:
            return start_lustre_server(target)
        return start_efs_server(target, self.authority.server_context(target.host))

    def _address(self, vpc_id: str, name: str) -> str | None:
        served = ((target.vpc_id, target.host, target.address) for target in tuple(self._end))
        return next((address for where, host, address in served if (where, host) == (vpc_id, name)), None)


def make_export_directory(run_dir: Path, file_system: str) -> None:
    """Create the directory behind a file system; its root belongs to root, like that of each new file system."""
    directory = run_dir / EXPORTS / file_system
    directory.mkdir(parents=True, exist_ok=True)
    directory.parent.chmod(0o700)
