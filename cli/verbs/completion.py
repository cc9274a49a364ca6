"""``dlcluster completion SHELL``: print the script that completes verbs and options in a shell."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from cli.errors import ClusterError
from cli.verb_group import PROGRAM

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_DLCLUSTER_COMPLETE"
"""With this variable set, click answers the shell's questions (click.shell_completion)."""
START_COMPLETION: Final = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }"
"""Starts zsh's completion system, which no file of a new user does: click's script needs its compdef."""
HELP: Final = f"""Print the completion script for your shell.

\b
bash 4.4 or later, in ~/.bashrc:     eval "$({PROGRAM} completion bash)"
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
    script = found(context.find_root().command, {}, PROGRAM, VARIABLE).source()
    # The first line is for a file in zsh's own path.
    click.echo(script.replace("\n", f"\n{START_COMPLETION}\n", 1) if shell == "zsh" else script)
    return 0
