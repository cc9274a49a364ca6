#!/usr/bin/python3
"""Stand in for NFS on a node: ``mount.nfs4 SOURCE DIRECTORY -o OPTIONS``, called by mount(8).

The kernel of the local AWS has no NFS client. Like the client, this queries the server that the options name, and then
mounts the file system's directory, which the data plane put on the node's disk. It runs on the node and uses only the
standard library.
"""

import socket
import struct
import subprocess
import sys
from pathlib import Path

EXPORTS = "/var/lib/local-aws/file-systems"
"""Directory of all file systems, on every node; only root may read it."""
FAILED = 32
"""Exit code of a mount that failed (mount(8))."""
TIMEOUT_S = 30.0
CALL = struct.pack(">11I", 0x80000000 | 40, 1, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
"""NULL call of NFS, version 4; local/storage/rpc.py explains it."""


def main(arguments: list[str]) -> int:
    """Mount a file system, or print why not."""
    source, directory, *rest = [each for each in arguments if each not in ("-o", "-n", "-s", "-v")]
    options = dict(each.partition("=")[::2] for each in ",".join(rest).split(","))
    for name, value in (("vers", "4.1"), ("proto", "tcp"), ("addr", source.partition(":")[0])):
        if options.get(name) != value:
            return fail(f"an incorrect mount option was specified: {name}={options.get(name)}")
    try:
        file_system = ask(options["addr"], int(options.get("port", "2049")))
    except OSError as error:
        return fail(f"Connection refused or timed out: {error}")
    exported = Path(EXPORTS, file_system)
    if not exported.is_dir():
        return fail("mounting failed, reason given by server: No such file or directory")
    subprocess.run(["mount", "-i", "-n", "--bind", str(exported), directory], check=True)
    subprocess.run(["mount", "-i", "-n", "-o", "remount,bind,nosuid,nodev", directory], check=True)
    return 0


def ask(address: str, port: int) -> str:
    """Call the server from a reserved port, and return the file system that it serves. Raises OSError."""
    for own_port in range(665, 1024):
        try:
            connection = socket.create_connection((address, port), TIMEOUT_S, source_address=(address, own_port))
        except OSError as error:
            if "in use" in str(error) or "assign" in str(error):
                continue
            raise
        with connection:
            connection.sendall(CALL)
            answer = connection.recv(4096)
            if len(answer) <= 28:
                raise ConnectionError("access denied by server")
            return answer[28:].decode()
    raise OSError("no reserved port is free")


def fail(message: str) -> int:
    """Print the message in the form of mount.nfs4."""
    print(f"mount.nfs4: {message}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
