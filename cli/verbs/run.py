"""``dlcluster run -- COMMAND``: run a command on the master."""

import sys

from cli.aws.nodes import master_address
from cli.cluster_context import find
from cli.errors import UsageError
from cli.shared_options import Selection
from cli.ssh.access import identity_path, remote_line
from cli.ssh.remote import SshTarget, run_command
from cli.verb import verb


@verb("run", examples=("dlcluster run -- launch python train.py",), takes_command=True)
def command(selection: Selection, *, command: tuple[str, ...]) -> int:
    """Run what follows -- on the master, with your SSH agent."""
    if not command:
        raise UsageError("no command given, as in: dlcluster run -- launch python train.py")
    context = find(selection)
    target = SshTarget(
        address=master_address(context.clients.ec2, context.membership, cluster_name=context.cluster.name),
        user=context.cluster.login_user,
        host_key=context.membership.master.host_key,
        identity=identity_path(selection.identity),
    )
    return run_command(target, remote_line(command), stdout_fd=sys.stdout.fileno(), stderr_fd=sys.stderr.fileno())
