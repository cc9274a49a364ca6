"""``dlcluster completion SHELL``: print the script that completes commands and options in a shell."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from cli.command_group import PROGRAM
from cli.errors import ClusterError

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_DLCLUSTER_COMPLETE"
"""With this variable set, click answers the shell's questions (click.shell_completion)."""
START_COMPLETION: Final = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }"
"""Starts zsh's completion system, which no file of a new user does: click's script needs its compdef."""
CHANGES: Final = {
    "bash": (
        ("_complete $1)", "_complete $1 2>/dev/null)"),
        ("    return 0\n", "    [[ ${COMPREPLY-} != *: ]] || compopt -o nospace\n    return 0\n"),
    ),
    "zsh": (
        (f"_complete {PROGRAM})", f"_complete {PROGRAM} 2>/dev/null)"),
        ("compadd -U ", """[[ $completions[1] == *: ]] && suffix=(-S '')\n        compadd -U "${suffix[@]}" """),
        ("local -a response\n", "local -a response suffix\n"),
        # The first line is for a file in zsh's own path.
        ("\n", f"\n{START_COMPLETION}\n"),
    ),
    "fish": ((f"(commandline -t) {PROGRAM})", f"(commandline -t) {PROGRAM} 2>/dev/null)"),),
}
"""Replacements in click's scripts: no error reaches the prompt, even if the environment has lost a package, and no
space follows NODE: because a path does."""
HELP: Final = f"""Print the completion script for your shell.

\b
bash 4.4 or later, in ~/.bashrc:     eval "$({PROGRAM} completion bash)"
zsh, in ~/.zshrc:                    eval "$({PROGRAM} completion zsh)"
fish, in ~/.config/fish/config.fish: {PROGRAM} completion fish | source

Clusters and nodes are those that {PROGRAM} saw last on this machine, or of cdk.json: no completion calls AWS.
"""


@click.command("completion", help=HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    complete_class = get_completion_class(shell)
    if complete_class is None:
        raise ClusterError(f"cannot complete words in {shell}")
    script = complete_class(ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    for old, new in CHANGES[shell]:
        script = script.replace(old, new, 1)
    click.echo(script)
    return 0
