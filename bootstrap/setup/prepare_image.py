"""Prepare a worker's disk for an image; ``dlcluster bake`` calls this as root once the node has left its cluster.

It removes what makes the machine this node, and what its users and jobs left. Installed software stays, and so does the
marker of the setup, so that a node of the image does not run the setup again. The machine is of no use afterwards.

AWS: "Required post-build clean-up" (EC2 Image Builder User Guide); cloud-init: `cloud-init clean`.
"""

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from bootstrap.atomic_file import Permissions, write_block, write_file
from bootstrap.contract import (
    AGENT_SERVICE,
    CURRENT_RELEASE_LINK,
    DURABLE_SERVICE,
    ENVIRONMENT_FILE,
    ENVIRONMENT_SCRIPT,
    HOSTS_FILE,
    KNOWN_HOSTS_FILE,
    LAUNCH_COMMAND,
    MXNET_ENVIRONMENT_SERVICE,
    NODE_CONFIG_FILE,
    READ_AHEAD_SERVICE,
    RELEASES_DIR,
    SCRATCH_DIRS,
    SETUP_MARKER_FILE,
    SETUP_SERVICE,
    SHARED_DIR,
    SHARED_STORAGE_SERVICE,
    SSH_CLIENT_CONFIG_FILE,
    SSHD_CONFIG_FILE,
    SYSTEMD_ENVIRONMENT_FILE,
    TRAINER_LINK,
    WORKER,
    WORKERS_FILE,
)
from bootstrap.errors import SetupError
from bootstrap.files.paths import under_root
from bootstrap.setup.run_once import done_marker

SERVICES: Final = (
    *(AGENT_SERVICE, SETUP_SERVICE, MXNET_ENVIRONMENT_SERVICE),
    *(DURABLE_SERVICE, SHARED_STORAGE_SERVICE, READ_AHEAD_SERVICE),
)
"""Units of this project; a node of the image gets them from its user data."""
WRITERS: Final = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "apt-daily.service", "apt-daily-upgrade.service"),
    *("unattended-upgrades.service", "cron.service", "crond.service", "atd.service"),
    # A socket would start its service again.
    *("docker.socket", "docker.service", "containerd.service", "snapd.socket", "snapd.service"),
    *("amazon-ssm-agent.service", "snap.amazon-ssm-agent.amazon-ssm-agent.service"),
    *("syslog.socket", "rsyslog.service", "user@*.service"),
)
"""Units of the system, with users' own systemd, that would write again what is removed."""
BLOCKS: Final = (HOSTS_FILE, ENVIRONMENT_FILE, KNOWN_HOSTS_FILE)
"""Files of which the product writes only the block between its markers."""
NODE_STATE_PATTERNS: Final = (
    *(f"/etc/systemd/system/{service}" for service in SERVICES),
    *(ENVIRONMENT_SCRIPT, SYSTEMD_ENVIRONMENT_FILE, SSH_CLIENT_CONFIG_FILE, SSHD_CONFIG_FILE, LAUNCH_COMMAND),
    *(CURRENT_RELEASE_LINK, TRAINER_LINK, RELEASES_DIR, WORKERS_FILE, str(Path(NODE_CONFIG_FILE).parent)),
)
IDENTITY_PATTERNS: Final = (
    *("/etc/ssh/ssh_host_*", "/etc/hostname", "/etc/netplan/50-cloud-init.yaml", "/var/lib/cloud/*"),
    *("/var/lib/dhcp/*", "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret", "/var/lib/amazon/ssm/*"),
)
"""Identity of the machine, which its first boot creates again."""
LEFT_BY_USERS: Final = (
    *("/tmp/*", *(f"{directory}/*" for directory in SCRATCH_DIRS)),  # noqa: S108  (removes, creates nothing)
    *("/var/lib/docker/*", "/var/lib/containerd/*"),
    *("/var/mail/*", "/var/crash/*", "/var/lib/systemd/coredump/*", "/var/lib/systemd/linger/*", "/var/log/journal/*"),
)
MACHINE_ID: Final = "/etc/machine-id"
"""An empty file makes the first boot choose one (machine-id(5))."""
HOMES: Final = ("/root", "/home/*")
SKELETON: Final = "/etc/skel"
FILES_BELOW: Final = ("/var/log", "/var/spool/cron", "/var/spool/at")
"""Logs, crontabs and at jobs: their programs do not create the directories again."""
SECRETS: Final = (
    *("/etc/ssh/ssh_host_*", str(Path(NODE_CONFIG_FILE).parent), "/var/lib/systemd/credential.secret"),
    *("/var/lib/amazon/ssm/*", "/var/spool/cron"),
)
SECRETS_OF_HOMES: Final = (
    *(".ssh", ".aws", ".config", ".docker", ".kube", ".gnupg", ".netrc", ".git-credentials", ".pypirc"),
    *("*history", ".cache/huggingface/token"),
)
"""Files and trees to overwrite: a snapshot of EBS copies freed blocks too."""
_ZEROS: Final = 1 << 20
"""Bytes in one write."""
_SESSION: Final = re.compile(r"session-(\w+)\.scope")
_USER: Final = re.compile(r"user-(\d+)\.slice")


class ImageSystem(Protocol):
    """Commands of `bootstrap.system.System` that make a node ready for an image of its disk."""

    def disable(self, unit: str) -> None:
        """Stop the unit, and start it at no boot; there may be no such unit."""

    def stop(self, units: Sequence[str], *, except_unit: str | None) -> None:
        """Stop the given units that are loaded. They start again at the next boot."""

    def disable_swap(self) -> list[str]:
        """Disable swap; return the swap files. Raises CommandError."""

    def unmount(self, directory: str) -> None:
        """Unmount what is mounted on a directory, if anything is."""

    def end_other_sessions(self, own: str | None) -> None:
        """End all logins but one: a shell writes its history when it ends."""

    def relinquish_journal(self) -> None:
        """Make journald log only to memory."""


def prepare_image(*, root: Path, sha256: str, system: ImageSystem, cgroup: str) -> None:
    """Remove keys, homes, logs and node state from the disk. Raises SetupError unless the setup has succeeded on it."""
    marker = under_root(root, SETUP_MARKER_FILE)
    marked = marker.read_text().strip() if marker.is_file() else "none"
    done = done_marker(sha256, WORKER)
    # An older release wrote no type.
    if marked not in (done.strip(), sha256):
        raise SetupError("another setup", f"the setup on this disk must be {done.strip()}, got {marked}")
    # Without the tunnel of its service, a mount that answers no more would hang whatever looks at it.
    system.unmount(SHARED_DIR)
    for service in SERVICES:
        system.disable(service)
    own, user = _SESSION.search(cgroup), _USER.search(cgroup)
    system.end_other_sessions(own[1] if own else None)
    system.stop(WRITERS, except_unit=f"user@{user[1]}.service" if user else None)
    swaps = system.disable_swap()
    system.relinquish_journal()
    write_file(marker, done)
    disk = root.stat().st_dev
    _overwrite_secrets(root, disk=disk)
    for path in _glob(root, (*swaps, *NODE_STATE_PATTERNS, *IDENTITY_PATTERNS, *LEFT_BY_USERS)):
        remove(path, disk=disk)
    for file in BLOCKS:
        if (path := under_root(root, file)).exists():
            write_block(path, "")
    for path in marker.parent.iterdir():
        if path != marker:
            remove(path, disk=disk)
    for home in _glob(root, HOMES):
        _empty_home(home, under_root(root, SKELETON), disk=disk)
    for directory in _glob(root, FILES_BELOW):
        for path in [each for each in _walk(directory, disk=disk) if each.is_symlink() or not each.is_dir()]:
            remove(path, disk=disk)
    write_file(under_root(root, MACHINE_ID), "", Permissions(mode=0o444))
    os.sync()


def remove(path: Path, *, disk: int) -> None:
    """Remove a file or a tree, but nothing of another file system that is mounted in it."""
    # A service that still runs may be faster.
    with contextlib.suppress(FileNotFoundError):
        if not _is_on(path, disk):
            return
        if not _is_directory(path):
            path.unlink()
        else:
            for child in [*path.iterdir()]:
                remove(child, disk=disk)
            # It may hold the place of a mount.
            if not any(path.iterdir()):
                path.rmdir()


def _overwrite_secrets(root: Path, *, disk: int) -> None:
    """Overwrite keys and credentials, and have that written to the disk before anything frees their blocks."""
    for path in _glob(root, (*SECRETS, *(f"{home}/{name}" for home in HOMES for name in SECRETS_OF_HOMES))):
        overwrite(path, disk=disk)
    os.sync()


def overwrite(path: Path, *, disk: int) -> None:
    """Overwrite a file, or the files of a tree, with zeros in place, but nothing of another file system."""
    with contextlib.suppress(FileNotFoundError):
        if not _is_on(path, disk):
            return
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            for child in [*path.iterdir()]:
                overwrite(child, disk=disk)
        # Another name of the file may be software that stays.
        elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            with path.open("r+b") as file:
                for start in range(0, status.st_size, _ZEROS):
                    file.write(bytes(min(_ZEROS, status.st_size - start)))


def _is_on(path: Path, disk: int) -> bool:
    """Return True if a file, or the content of a directory, is on the disk; other machines may share what is not.

    Only directories tell: on an overlay, other files may have the number of a lower layer.
    """
    return (path if _is_directory(path) else path.parent).stat().st_dev == disk


def _is_directory(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)


def _walk(directory: Path, *, disk: int) -> Iterator[Path]:
    """Yield what is below a directory, but nothing of another file system: it may be large, or answer no more."""
    for child in [*directory.iterdir()]:
        # A service that still runs may be faster.
        with contextlib.suppress(FileNotFoundError):
            if _is_on(child, disk):
                yield child
                if _is_directory(child):
                    yield from _walk(child, disk=disk)


def _glob(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(root.glob(pattern.lstrip("/")))


def _empty_home(home: Path, skeleton: Path, *, disk: int) -> None:
    """Make a home as a new user's."""
    if not _is_directory(home) or not _is_on(home, disk):
        return
    owner = home.lstat()
    for child in [*home.iterdir()]:
        remove(child, disk=disk)
    if skeleton.is_dir():
        mount_points = {child.name for child in home.iterdir()}

        def mounted(_directory: str, names: list[str]) -> set[str]:
            return mount_points.intersection(names)

        shutil.copytree(skeleton, home, dirs_exist_ok=True, symlinks=True, ignore=mounted)
    home.chmod(stat.S_IMODE(owner.st_mode))
    for path in [home, *_walk(home, disk=disk)]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
