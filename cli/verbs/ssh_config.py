"""``dlcluster ssh-config``: print a block for the user's SSH configuration."""

from cli.cluster_context import find
from cli.options import Options
from cli.ssh.config import config_text
from cli.verbs.ssh import access


def main(options: Options) -> int:
    context = find(options)
    print(config_text(access(context), context.membership.members), end="")
    return 0
