"""``dlcluster run -- COMMAND``: run a command on the master."""

import sys

from cli.aws.nodes import master_address
from cli.cluster_context import find, identity_path, remote_line
from cli.options import Options
from cli.ssh.remote import SshTarget, run_command


def main(options: Options) -> int:
    context = find(options)
    target = SshTarget(
        address=master_address(context.clients.ec2, context.membership, cluster_name=context.cluster.name),
        user=context.cluster.login_user,
        host_key=context.membership.master.host_key,
        identity=identity_path(options.identity),
    )
    line = remote_line(options.command)
    return run_command(target, line, stdout_fd=sys.stdout.fileno(), stderr_fd=sys.stderr.fileno())
