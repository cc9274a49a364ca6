"""Type the lines of the tutorials like a new user: on a laptop with the settings of the install page."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from local.run.user import USER_SETTINGS, User
from tests.e2e.support.console_blocks import Step, outputs, script, sessions
from tests.e2e.support.laptop import Laptop, new_laptop

DOCS: Final = Path(__file__).parents[3] / "docs"
INSTALL: Final = DOCS / "start/install.md"
FIRST_CLUSTER: Final = DOCS / "start/first-cluster.md"
OWN_SCRIPT: Final = DOCS / "start/your-own-script.md"
SETTINGS: Final = re.compile(r'^```json\n("context": \{.*?^\})\n```$', re.DOTALL | re.MULTILINE)
"""Matches a page's block of settings, which the reader copies into cdk.json."""


def page_settings(page: Path) -> Mapping[str, Any]:
    """Return the settings that a page has the reader write into cdk.json."""
    [found] = SETTINGS.findall(page.read_text())
    settings: Mapping[str, Any] = json.loads(f"{{{found}}}")["context"]["cluster"]
    return settings


def new_user_laptop(user: User, directory: Path) -> Laptop:
    """Return a laptop with the settings of the install page, but for the machine, the key and the address of here."""
    return new_laptop(user, directory, {**page_settings(INSTALL), **USER_SETTINGS})


@contextmanager
def ssh_configured(user: User) -> Iterator[None]:
    """Let plain ssh and scp know the nodes, as docs/use/log-in.md says, until the block ends."""
    config = Path.home() / ".ssh/config"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text(f"Include {user.ssh_config}\n")
    try:
        yield
    finally:
        config.unlink()


def run_page(laptop: Laptop, page: Path) -> list[tuple[Step, list[str]]]:
    """Run a page's lines; return each command with the lines that it printed."""
    found: list[tuple[Step, list[str]]] = []
    for machine, session in sessions(page):
        lines = script(session)
        # ssh joins its arguments into one line for the login shell, which may contain line ends.
        printed = laptop.on(machine, f"cd\n{lines}\n") if machine == "master" else laptop.run("bash", "-c", lines)
        found += zip(session, outputs(printed), strict=True)
    return found
