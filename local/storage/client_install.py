"""Install what a node needs to mount file systems: mount helpers, resolver configuration and the CA certificate."""

import shutil
from pathlib import Path
from typing import Final

from local.network.addresses import NAME_SERVER_ADDRESS
from local.storage import lustre_mount_helper, nfs_client, nfs_mount_helper
from local.storage.certificates import Authority

EXPORTS: Final = "file-systems"
"""Directory of all file systems, in the run's directory; boot.sh binds it to the helpers' EXPORTS on each node."""
_NFS_CLIENT: Final = Path(nfs_client.__path__[0])
_REPOSITORY: Final = _NFS_CLIENT.parents[2]
_RESOLVER: Final = f"nameserver {NAME_SERVER_ADDRESS}\noptions timeout:1 attempts:2\n"


def install_storage_client(disk: Path, *, authority: Authority) -> None:
    """Write the files to the disk of a node that has not booted yet."""
    for kind, program in (("nfs4", nfs_mount_helper), ("lustre", lustre_mount_helper)):
        helper = disk / f"usr/sbin/mount.{kind}"
        helper.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(program.__file__), helper)
        helper.chmod(0o755)
    _install_nfs_client(disk / nfs_mount_helper.LIBRARY.lstrip("/"))
    resolver = disk / "etc/resolv.conf"
    resolver.parent.mkdir(parents=True, exist_ok=True)
    resolver.write_text(_RESOLVER)
    (disk / lustre_mount_helper.EXPORTS.lstrip("/")).mkdir(parents=True, mode=0o700)
    authority.trust(disk)


def _install_nfs_client(library: Path) -> None:
    """Copy its modules, with the packages that contain them."""
    for module in _NFS_CLIENT.glob("*.py"):
        target = library / module.relative_to(_REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, target)
    for package in (_NFS_CLIENT.parent, _NFS_CLIENT.parents[1]):
        shutil.copyfile(package / "__init__.py", library / package.relative_to(_REPOSITORY) / "__init__.py")
