"""``dlcluster ssh-config``: print a block for the user's SSH configuration."""

from cli.cluster_context import look_up_context
from cli.command import cluster_command
from cli.shared_options import Selection
from cli.ssh.access import resolve_access
from cli.ssh.config import config_text


@cluster_command("ssh-config", examples=("dlcluster ssh-config > ~/.ssh/deeplearning.config",))
def command(selection: Selection) -> int:
    """Print a block for ~/.ssh/config.

    It works with ssh, scp and rsync, and stays valid when nodes are replaced. Print it again after adding nodes.
    """
    context = look_up_context(selection)
    print(config_text(resolve_access(context), context.membership.members), end="")
    return 0
