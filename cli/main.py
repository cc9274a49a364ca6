"""Run ``dlcluster COMMAND``: inspect a cluster, log in to it, run jobs on it.

Importing this module is fast, because each command's module is imported only when the command runs.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from bootstrap.contract import VERSION
from cli.command_group import PROGRAM, CommandGroup
from cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, ClusterError, in_our_style
from cli.output import printable
from cli.shared_options import cluster_options

HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}
EPILOG: Final = (
    "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no such cluster, 4 AWS refuses the credentials. "
    "ssh and run return the exit code of the command that they started."
)


@click.group(PROGRAM, cls=CommandGroup, invoke_without_command=True, epilog=EPILOG, context_settings=HELP_OPTIONS)
@cluster_options
@click.version_option(VERSION, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def dlcluster(ctx: click.Context) -> None:
    """Look at a training cluster, log in to it, run jobs on it."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        code = dlcluster.main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except ClusterError as error:
        return _fail(error.full_message, error.exit_code)
    except click.ClickException as error:
        return _fail(in_our_style(error.format_message()), EXIT_USAGE)
    except BrokenPipeError:
        # The reader has closed the pipe, as in ``dlcluster status | head -1``.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    return code or 0


def console_script() -> None:
    """Run the program that ``pip install`` creates, and exit."""
    sys.exit(main(sys.argv[1:]))


def _fail(message: str, exit_code: int) -> int:
    print(f"{PROGRAM}: {printable(message)}", file=sys.stderr)
    return exit_code
