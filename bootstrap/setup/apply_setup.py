"""Run the setup of a later deploy on a node that was launched earlier; ``dlcluster setup`` calls this as root."""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bootstrap.atomic_file import write_file
from bootstrap.config import parse_config
from bootstrap.contract import AGENT_SERVICE, NODE_CONFIG_FILE, SETUP_LOG_FILE, SETUP_SERVICE, SETUP_STATE_FILE
from bootstrap.errors import SetupError
from bootstrap.files.paths import under_root
from bootstrap.install import InstallSystem, start_services
from bootstrap.setup.archive import SetupSource
from bootstrap.setup.progress import read_progress

log = logging.getLogger(__name__)

POLL_S: Final = 0.5
"""Seconds between checks of the service's progress."""
MARGIN_S: Final = 60.0
"""Seconds that the service may take beyond the setup itself."""


def apply_setup(
    source: SetupSource,
    *,
    root: Path,
    system: InstallSystem,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Put the setup into the node's configuration, run it, and wait for its end. Raises SetupError if it fails.

    The agent rereads the configuration. Until the setup has ended, the node keeps its place in the cluster.
    """
    file = under_root(root, NODE_CONFIG_FILE)
    named = {"setup": source.url, "setup_sha256": source.sha256, "setup_timeout_s": int(source.timeout_s)}
    text = json.dumps(json.loads(file.read_text()) | named, indent=2) + "\n"
    config = parse_config(text)
    write_file(file, text)
    # An earlier attempt at the same setup has left its outcome.
    under_root(root, SETUP_STATE_FILE).unlink(missing_ok=True)
    start_services(config, root=root, system=system)
    for unit in (SETUP_SERVICE, AGENT_SERVICE):
        system.restart(unit)
    deadline = monotonic() + source.timeout_s + MARGIN_S
    while (progress := read_progress(root, sha256=source.sha256)).is_running:
        if monotonic() >= deadline:
            raise SetupError("timed out", f"waited {source.timeout_s + MARGIN_S:.0f} s for {SETUP_SERVICE} to end")
        sleep(POLL_S)
    if progress.failure:
        raise SetupError(progress.failure, f"{progress.failure} ({SETUP_LOG_FILE} has all lines)")
    log.info("setup %s is done", source.sha256)
