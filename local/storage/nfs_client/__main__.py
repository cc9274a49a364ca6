"""Mount a file system and serve it: ``python3 -m local.storage.nfs_client SOURCE DIRECTORY ADDRESS PORT``.

It mounts in the foreground, prints why it failed or an empty line, and then serves in the background until the file
system is unmounted. Like the kernel's NFS client it answers only while the server does: until then every process that
uses the directory waits in the kernel, and can only be killed. It runs on the node and uses only the standard library.
"""

import contextlib
import ctypes
import errno
import os
import resource
import select
import stat
import sys
from pathlib import Path
from typing import Final

from local.storage.nfs_client.connection import AccessDeniedError, ServerConnection, connect, probe
from local.storage.nfs_client.file_server import FileServer
from local.storage.nfs_client.messages import MAX_REQUEST, MAX_WRITE

EXPORTS: Final = "/var/lib/local-aws/file-systems"
"""Directory of all file systems, on every node; only root may read it."""
DEVICE: Final = Path("/dev/fuse")
DEVICE_NUMBER: Final = (10, 229)
CGROUP: Final = Path("/sys/fs/cgroup/local-aws-nfs")
"""A cgroup beside systemd's own: the kernel's client does not end with the service that mounted either."""
LOCK_RETRY_MS: Final = 50
_NOSUID, _NODEV = 2, 4


class MountError(Exception):
    """The mount failed."""


def main(arguments: list[str]) -> int:
    """Mount, and serve."""
    source, directory, address, port = arguments
    try:
        connection = connect(address, int(port))
        file_system = probe(connection)
        exported = Path(EXPORTS, file_system)
        if not exported.is_dir():
            raise MountError("mounting failed, reason given by server: No such file or directory")
        device = mount(f"{source}{file_system}", directory)
    except AccessDeniedError:
        print(f"access denied by server while mounting {source}", flush=True)
        return 1
    except OSError as error:
        print(f"Connection refused or timed out: {error}", flush=True)
        return 1
    except MountError as error:
        print(error, flush=True)
        return 1
    leave_service()
    server = ServerConnection(address, int(port), connection)
    server.start()
    print(flush=True)
    os.dup2(os.open(os.devnull, os.O_RDWR), sys.stdout.fileno())
    serve(device, FileServer(exported), server)
    return 0


def mount(source: str, directory: str) -> int:
    """Mount, and return the descriptor with the kernel's requests. Raises MountError."""
    if not DEVICE.exists():
        os.mknod(DEVICE, stat.S_IFCHR | 0o600, os.makedev(*DEVICE_NUMBER))
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read={MAX_WRITE}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), directory.encode(), b"fuse.nfs4", _NOSUID | _NODEV, options.encode()) != 0:
        raise MountError(os.strerror(ctypes.get_errno()))
    return device


def leave_service() -> None:
    """Outlive the process that mounts, and its service; open as many files as the node allows."""
    os.setsid()
    CGROUP.mkdir(exist_ok=True)
    (CGROUP / "cgroup.procs").write_text(str(os.getpid()))


def serve(device: int, files: FileServer, server: ServerConnection) -> None:
    """Answer requests until the file system is unmounted.

    Leave requests with the kernel while the server does not answer: their processes can be killed only there.
    """
    os.umask(0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    poll = select.poll()
    poll.register(device, select.POLLIN)
    while True:
        ready = poll.poll(LOCK_RETRY_MS if files.has_waiting else None)
        if ready and ready[0][1] & select.POLLERR:
            return
        server.wait_until_it_answers()
        try:
            answers = files.answers(os.read(device, MAX_REQUEST)) if ready else files.retry_locks()
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.ENOENT, errno.EINTR):  # The process was killed meanwhile.
                continue
            raise
        for reply in answers:
            with contextlib.suppress(FileNotFoundError):  # likewise
                os.write(device, reply)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
