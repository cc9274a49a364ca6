"""``dlcluster ssh-config``: print a block for the user's SSH configuration."""

from cli.options import Options
from cli.request import find
from cli.ssh.config import config_text
from cli.verbs.ssh import access


def main(options: Options) -> int:
    request = find(options)
    print(config_text(access(request), request.membership.members), end="")
    return 0
