"""Run a command on every host as MXNet's launch.py does: ``python _launch_py.py HOSTS_FILE COMMAND``.

It starts a thread for each host, with ssh through a shell (see dmlc_tracker/ssh.py of dmlc-core). Unlike launch.py, it
reports failures.
"""

import subprocess
import sys
import threading
from pathlib import Path


def main(hosts: list[str], command: str) -> int:
    """Run the command on every host; return 1 if it failed on any."""
    failed: list[str] = []

    def run(host: str) -> None:
        # launch.py skips the check of host keys, which takes as long as checking a known key.
        line = f"ssh -o StrictHostKeyChecking=yes {host} -p 22 'cd {Path.cwd()}; {command}'"
        if subprocess.call(["/bin/sh", "-c", line]):
            failed.append(host)

    threads = [threading.Thread(target=run, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).read_text().split(), " ".join(sys.argv[2:])))
