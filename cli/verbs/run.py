"""``dlcluster run -- COMMAND``: run a command on the master."""

import sys

from cli.aws.nodes import master_address
from cli.options import Options
from cli.request import find, identity_path, remote_line
from cli.ssh.remote import Target, run_command


def main(options: Options) -> int:
    request = find(options)
    target = Target(
        address=master_address(request.clients.ec2, request.membership),
        user=request.cluster.login_user,
        host_key=request.membership.master.host_key,
        identity=identity_path(options.identity),
    )
    line = remote_line(options.command)
    return run_command(target, line, stdout_fd=sys.stdout.fileno(), stderr_fd=sys.stderr.fileno())
