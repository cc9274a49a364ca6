"""``dlcluster completion SHELL``: print the script that completes verbs and options in a shell."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from cli.errors import ClusterError
from cli.verb_group import PROGRAM

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_DLCLUSTER_COMPLETE"
"""Variable that makes click answer the shell's questions (click.shell_completion)."""
HELP: Final = f"""Print the completion script for your shell.

\b
bash, in ~/.bashrc:                  eval "$({PROGRAM} completion bash)"
zsh, in ~/.zshrc:                    eval "$({PROGRAM} completion zsh)"
fish, in ~/.config/fish/config.fish: {PROGRAM} completion fish | source
"""


@click.command("completion", help=HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    found = get_completion_class(shell)
    if found is None:
        raise ClusterError(f"cannot complete words in {shell}")
    click.echo(found(context.find_root().command, {}, PROGRAM, VARIABLE).source())
    return 0
