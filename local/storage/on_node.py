"""Give a node what it needs to mount file systems: the mount helpers, the name server, the authority to trust."""

import shutil
from pathlib import Path
from typing import Final

from local.network.addresses import NAME_SERVER_ADDRESS
from local.storage import lustre_mount_helper, mount_helper
from local.storage.certificates import Authority

EXPORTS: Final = "file-systems"
"""Directory of all file systems, in the run's directory; boot.sh binds it to mount_helper.EXPORTS on each node."""
_RESOLVER: Final = f"nameserver {NAME_SERVER_ADDRESS}\noptions timeout:1 attempts:2\n"


def install_storage_client(disk: Path, *, authority: Authority) -> None:
    """Write the files to the disk of a node that has not booted yet."""
    for kind, program in (("nfs4", mount_helper), ("lustre", lustre_mount_helper)):
        helper = disk / f"usr/sbin/mount.{kind}"
        helper.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(program.__file__), helper)
        helper.chmod(0o755)
    resolver = disk / "etc/resolv.conf"
    resolver.parent.mkdir(parents=True, exist_ok=True)
    resolver.write_text(_RESOLVER)
    (disk / mount_helper.EXPORTS.lstrip("/")).mkdir(parents=True, mode=0o700)
    authority.trust(disk)


def make_directory(run_dir: Path, file_system: str) -> None:
    """Create the directory behind a file system; its root belongs to root, like that of each new file system."""
    directory = run_dir / EXPORTS / file_system
    directory.mkdir(parents=True, exist_ok=True)
    directory.parent.chmod(0o700)
