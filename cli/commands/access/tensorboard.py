"""``dlcluster tensorboard``: run TensorBoard on the master and show it here."""

import sys
from typing import Final

import click

from cli.command import cluster_command
from cli.errors import EXIT_INTERRUPTED
from cli.shared_options import Selection
from cli.ssh.browser import open_address
from cli.ssh.web_app import WebApp, run_app, web_app_options

EXAMPLES: Final = ("dlcluster tensorboard --logdir mycode/runs", "dlcluster tensorboard --logdir runs --venv tools")
PACKAGE: Final = "tensorboard==2.21.0"
PORT: Final = 6006


@cluster_command("tensorboard", examples=EXAMPLES)
@click.option(
    "--logdir", metavar="DIR", default="runs", help="Directory on the master, from the home directory (runs)."
)
@web_app_options
def command(
    selection: Selection, *, logdir: str, venv: str | None, local_port: int | None, browser: bool | None
) -> int:
    """Run TensorBoard on the master and show it in the browser, until Ctrl-C ends it there too.

    Only this machine can reach it, through ssh.
    """
    arguments = ("-m", "tensorboard.main", "--host", "127.0.0.1", "--port", "{port}", "--logdir", logdir)
    app = WebApp(module="tensorboard", package=PACKAGE, arguments=arguments, local_port=PORT, directory=logdir)
    try:
        with run_app(selection, app, venv=venv, local_port=local_port) as board:
            if not board.has_directory:
                print(f"dlcluster: the master has no directory {logdir} yet; --logdir names another", file=sys.stderr)
            print(f"{board.address} is TensorBoard of {logdir} on the master; Ctrl-C ends it", flush=True)
            open_address(board.address, wanted=browser)
            board.wait()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0
