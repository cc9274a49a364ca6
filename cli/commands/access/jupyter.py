"""``dlcluster jupyter``: run JupyterLab on the master and show it here."""

import html
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cli.command import cluster_command
from cli.errors import EXIT_INTERRUPTED
from cli.shared_options import Selection
from cli.ssh.browser import open_address
from cli.ssh.web_app import WebApp, run_app, web_app_options

PACKAGE: Final = "jupyterlab==4.6.6"
PORT: Final = 8888
ARGUMENTS: Final = (
    *("-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port={port}"),
    "--ServerApp.port_retries=0",
)
TOKEN_VARIABLE: Final = "JUPYTER_TOKEN"  # noqa: S105  (the name of a variable of Jupyter's)
TOKEN_BYTES: Final = 24


@cluster_command("jupyter", examples=("dlcluster jupyter", "dlcluster jupyter --venv tools --no-browser"))
@web_app_options
def command(selection: Selection, *, venv: str | None, local_port: int | None, browser: bool | None) -> int:
    """Run JupyterLab on the master and show it in the browser, until Ctrl-C ends it there too.

    Its kernels end with it, even if the connection is lost for a minute, so save often. It sees only the master's GPUs.
    Only this machine can reach it, through ssh, and only with the token in the address.
    """
    token = secrets.token_hex(TOKEN_BYTES)
    app = WebApp(
        module="jupyterlab", package=PACKAGE, arguments=ARGUMENTS, local_port=PORT, stdin_variable=TOKEN_VARIABLE,
        secret=token,
    )  # fmt: skip
    try:
        with run_app(selection, app, venv=venv, local_port=local_port) as lab, _redirect(lab.address, token) as page:
            print(f"{lab.address}lab?token={token} is JupyterLab on the master; Ctrl-C ends it", flush=True)
            open_address(page.as_uri(), wanted=browser)
            lab.wait()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


@contextmanager
def _redirect(address: str, token: str) -> Iterator[Path]:
    """Yield a page, readable only by this user, that leads to the address: a browser's command line is public."""
    url = html.escape(f"{address}lab?token={token}")
    with tempfile.TemporaryDirectory(prefix="dlcluster-") as directory:
        page = Path(directory, "jupyter.html")
        page.write_text(f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">JupyterLab</a>\n')
        yield page
