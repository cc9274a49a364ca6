"""Install a release on a node: ``python3 RELEASE/bootstrap install``, as root, from the user data.

A second run changes nothing. A run from another release switches to that release.
"""

import compileall
import logging
import os
from pathlib import Path
from typing import Final, Protocol

from bootstrap.atomic_file import Permissions, point_link, write_and_act, write_file
from bootstrap.config import NodeConfig, parse_config
from bootstrap.contract import (
    AGENT_SERVICE,
    CURRENT_RELEASE_LINK,
    DURABLE_SERVICE,
    LAUNCH_COMMAND,
    MASTER,
    MOUNT_STOPPED,
    MXNET_ENVIRONMENT_SERVICE,
    NODE_CONFIG_FILE,
    READ_AHEAD_SERVICE,
    SETUP_SERVICE,
    SHARED_STATE_FILE,
    SHARED_STORAGE_SERVICE,
    TRAINER_LINK,
)
from bootstrap.errors import BootstrapError, ConfigError
from bootstrap.files.paths import pending_file, under_root
from bootstrap.read_ahead.volume import is_pytorch_on_ebs

log = logging.getLogger(__name__)

UNIT_FILE: Final = f"/etc/systemd/system/{AGENT_SERVICE}"
UNIT: Final = f"""\
[Unit]
Description=deeplearning-cdk agent (release {{release}})
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 {CURRENT_RELEASE_LINK}/bootstrap run
Restart=always
RestartSec=2
StandardOutput=journal
StandardError=journal

[Install]
WantedBy=multi-user.target
"""
MXNET_ENVIRONMENT_UNIT_FILE: Final = f"/etc/systemd/system/{MXNET_ENVIRONMENT_SERVICE}"
MXNET_ENVIRONMENT_UNIT: Final = f"""\
[Unit]
Description=deeplearning-cdk MXNet environment
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 {CURRENT_RELEASE_LINK}/bootstrap mxnet-environment
# The agent reports a failure; only a service that was killed starts again.
Restart=on-failure
RestartSec=5
Nice=5

[Install]
WantedBy=multi-user.target
"""
SHARED_STORAGE_UNIT_FILE: Final = f"/etc/systemd/system/{SHARED_STORAGE_SERVICE}"
SHARED_STORAGE_UNIT: Final = f"""\
[Unit]
Description=deeplearning-cdk shared storage (release {{release}})
Wants=network-online.target remote-fs-pre.target
After=network-online.target
# At shutdown systemd unmounts the network file system before it stops the tunnel that carries it.
Before=remote-fs-pre.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 {CURRENT_RELEASE_LINK}/bootstrap shared-storage
# However it ended: the state that it wrote last is not true any more.
ExecStopPost=-/bin/sh -c 'echo {MOUNT_STOPPED} >{SHARED_STATE_FILE}'
Restart=always
RestartSec=2
# Without the tunnel every process that uses the directory hangs: others go first if the memory runs out.
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
"""
SETUP_UNIT_FILE: Final = f"/etc/systemd/system/{SETUP_SERVICE}"
SETUP_UNIT: Final = f"""\
[Unit]
Description=deeplearning-cdk setup of the user
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 {CURRENT_RELEASE_LINK}/bootstrap setup
# The agent reports a failure; only a service that was killed starts again.
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""
DURABLE_UNIT_FILE: Final = f"/etc/systemd/system/{DURABLE_SERVICE}"
DURABLE_UNIT: Final = f"""\
[Unit]
Description=deeplearning-cdk durable jobs (release {{release}})
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
# Jobs are units of this user's systemd.
User={{user}}
ExecStart=/usr/bin/python3 -I -S -X utf8 {CURRENT_RELEASE_LINK}/launcher/durable/__main__.py serve
Restart=always
RestartSec=5
Nice=5

[Install]
WantedBy=multi-user.target
"""
READ_AHEAD_UNIT_FILE: Final = f"/etc/systemd/system/{READ_AHEAD_SERVICE}"
READ_AHEAD_UNIT: Final = f"""\
[Unit]
Description=deeplearning-cdk reads PyTorch's libraries
After={AGENT_SERVICE}

[Service]
ExecStart=/usr/bin/python3 {CURRENT_RELEASE_LINK}/bootstrap read-ahead
# Everything else on the node goes first, where the disk's scheduler knows priorities.
Nice=19
IOSchedulingClass=idle
# A read that never returns ends with the service.
RuntimeMaxSec=900

[Install]
WantedBy=multi-user.target
"""
LAUNCH: Final = f"""\
#!/bin/sh
exec /usr/bin/python3 -I -S -X utf8 {CURRENT_RELEASE_LINK}/launcher/__main__.py "$@"
"""


class InstallSystem(Protocol):
    """Commands of `bootstrap.system.System` with which an installation controls systemd."""

    def reload_units(self) -> None:
        """Make systemd read its unit files again."""

    def enable(self, unit: str) -> None:
        """Start the unit now and at every boot."""

    def restart(self, unit: str) -> None:
        """Restart the unit."""

    def enable_linger(self, user: str) -> None:
        """Start the user's systemd at boot, and keep it running after logout."""


def install(release: Path, *, root: Path, system: InstallSystem) -> None:
    """Make this release the current one, and restart everything that runs another one."""
    if not (release / "bootstrap").is_dir():
        raise BootstrapError(f"release must hold bootstrap/, got {release}")
    if root == Path("/") and os.geteuid() != 0:
        raise BootstrapError(f"install must run as root, got user id {os.geteuid()}")
    compile_for_users(release)
    point_link(under_root(root, CURRENT_RELEASE_LINK), release)
    point_link(under_root(root, TRAINER_LINK), Path(CURRENT_RELEASE_LINK) / "trainer")
    write_file(under_root(root, LAUNCH_COMMAND), LAUNCH, Permissions(mode=0o755))
    _start_or_restart(release, AGENT_SERVICE, UNIT_FILE, UNIT, pending_action="restart-agent", root=root, system=system)
    config = _read_config(root)
    if config is not None:
        _serve_jobs(config, release, root=root, system=system)
        start_services(config, root=root, system=system)
        _start_shared_storage(config, release, root=root, system=system)
    _start_reading_ahead(root=root, system=system)
    log.info("installed release %s", release.name)


def compile_for_users(release: Path) -> None:
    """Compile the code that jobs run; users cannot write byte code there, so otherwise every rank would compile it."""
    for package in ("bootstrap", "launcher", "trainer"):
        if (release / package).is_dir() and not compileall.compile_dir(release / package, quiet=2):
            raise BootstrapError(f"cannot compile {release / package}")


def _start_or_restart(
    release: Path, service: str, file: str, unit: str, *, pending_action: str, root: Path, system: InstallSystem
) -> None:
    """Start a service, or restart it if its unit file names another release.

    The file ``pending_action`` lasts until the restart has happened, even if the installation is killed before.
    """

    def restart_unit() -> None:
        system.reload_units()
        system.enable(service)
        system.restart(service)

    changed = write_and_act(
        under_root(root, file),
        unit.format(release=release.name),
        act=restart_unit,
        pending=pending_file(root, pending_action),
    )
    if not changed:
        system.enable(service)


def _read_config(root: Path) -> NodeConfig | None:
    """Return the node's configuration; None if it is missing or bad, which the agent reports."""
    try:
        return parse_config(under_root(root, NODE_CONFIG_FILE).read_text())
    except (FileNotFoundError, ConfigError):
        return None


def _serve_jobs(config: NodeConfig, release: Path, *, root: Path, system: InstallSystem) -> None:
    """Prepare the master for detached jobs, and start the service that restarts durable ones.

    Both are units of the login user's systemd, which ends at logout unless lingering is enabled.
    """
    if config.node_type == MASTER:
        system.enable_linger(config.default_user)
        unit = DURABLE_UNIT.replace("{user}", config.default_user)
        _start_or_restart(
            release,
            DURABLE_SERVICE,
            DURABLE_UNIT_FILE,
            unit,
            pending_action="restart-durable",
            root=root,
            system=system,
        )


def start_services(config: NodeConfig, *, root: Path, system: InstallSystem) -> None:
    """Start the services for the user's setup and the MXNet environment, if the configuration requires them."""
    for wanted, service, file, unit in (
        (config.setup, SETUP_SERVICE, SETUP_UNIT_FILE, SETUP_UNIT),
        (config.mxnet_environment, MXNET_ENVIRONMENT_SERVICE, MXNET_ENVIRONMENT_UNIT_FILE, MXNET_ENVIRONMENT_UNIT),
    ):
        if wanted is None:
            continue
        if write_file(under_root(root, file), unit):
            system.reload_units()
        system.enable(service)


def _start_shared_storage(config: NodeConfig, release: Path, *, root: Path, system: InstallSystem) -> None:
    """Start the service that mounts the shared storage, if the cluster has any; a mount survives its restart."""
    if config.shared_storage is not None:
        _start_or_restart(
            release,
            SHARED_STORAGE_SERVICE,
            SHARED_STORAGE_UNIT_FILE,
            SHARED_STORAGE_UNIT,
            pending_action="restart-shared-storage",
            root=root,
            system=system,
        )


def _start_reading_ahead(*, root: Path, system: InstallSystem) -> None:
    """Start the service that reads PyTorch's libraries, last of all, where the volume makes the first access slow."""
    if not is_pytorch_on_ebs(root):
        return
    if write_file(under_root(root, READ_AHEAD_UNIT_FILE), READ_AHEAD_UNIT):
        system.reload_units()
    system.enable(READ_AHEAD_SERVICE)
