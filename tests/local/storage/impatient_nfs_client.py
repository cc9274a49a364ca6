"""Run the stand-in for the kernel's NFS client with a timeout that a test can wait for."""

import sys

from local.storage.nfs_client import __main__, connection

if __name__ == "__main__":
    connection.TIMEOUT_S = 0.5  # type: ignore[misc]
    sys.exit(__main__.main(sys.argv[1:]))
