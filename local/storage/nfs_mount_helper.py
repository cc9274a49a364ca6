#!/usr/bin/python3
"""Stand in for NFS on a node: ``mount.nfs4 SOURCE DIRECTORY -o OPTIONS``, called by mount(8).

The kernel of the local AWS has no NFS client. This starts a program that takes its place, ``local.storage.nfs_client``:
it queries the server that the options name, mounts, and answers the kernel from the file system's directory, which the
data plane put on the node's disk. It runs on the node and uses only the standard library.
"""

import os
import subprocess
import sys

LIBRARY = "/usr/lib/local-aws"
"""Directory of the client's modules on a node."""
CLIENT = "local.storage.nfs_client"
FAILED = 32
"""Exit code of a mount that failed (mount(8))."""


def main(arguments: list[str]) -> int:
    """Mount a file system, or print why not."""
    source, directory, *rest = [argument for argument in arguments if argument not in ("-o", "-n", "-s", "-v")]
    options = dict(option.partition("=")[::2] for option in ",".join(rest).split(","))
    for name, value in (("vers", "4.1"), ("proto", "tcp"), ("addr", source.partition(":")[0])):
        if options.get(name) != value:
            return fail(f"an incorrect mount option was specified: {name}={options.get(name)}")
    command = [sys.executable, "-m", CLIENT, source, directory, options["addr"], options.get("port", "2049")]
    environment = {**os.environ, "PYTHONPATH": LIBRARY}
    client = subprocess.Popen(
        command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert client.stdout is not None
    # An empty line: it has mounted, and goes on in the background. Nothing: it has failed unexpectedly.
    printed = client.stdout.readline().decode()
    if printed == "\n":
        return 0
    return fail(printed.strip() or "the client ended")


def fail(message: str) -> int:
    """Print the message in the form of mount.nfs4."""
    print(f"mount.nfs4: {message}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
