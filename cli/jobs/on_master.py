"""Run the launcher's own command lines on the master."""

import sys
from collections.abc import Sequence
from typing import Final

from cli.cluster_context import find_selected_cluster
from cli.shared_options import Selection
from cli.ssh.access import remote_command
from cli.ssh.master import ssh_target
from cli.ssh.remote import run_command

LAUNCHER: Final = "launch"


def run_on_master(selection: Selection, command: Sequence[str]) -> int:
    """Run a command line that begins with launch on the master, with the user's agent, as a shell there would."""
    target = ssh_target(find_selected_cluster(selection))
    code = run_command(
        target, remote_command(tuple(command)), stdout_fd=sys.stdout.fileno(), stderr_fd=sys.stderr.fileno()
    )
    if code:
        print("dlcluster: launch ran in the master's home directory, and nothing was copied there", file=sys.stderr)
    return code
