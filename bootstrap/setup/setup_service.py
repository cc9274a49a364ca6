"""Run the service ``bootstrap setup``: the user's setup, with its output in the log file and the log group."""

import logging
import time
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from bootstrap.aws.clients import connect
from bootstrap.aws.imds import read_identity
from bootstrap.aws.log_shipping import LogShipper, set_up_logging
from bootstrap.config import NodeConfig, parse_config
from bootstrap.contract import BUCKET_VARIABLE, NODE_CONFIG_FILE, SETUP_LOG_FILE
from bootstrap.errors import MetadataError
from bootstrap.files.paths import under_root
from bootstrap.setup.archive import SetupSource
from bootstrap.setup.process import run_program
from bootstrap.setup.run_once import SetupDependencies, run_setup_once

log = logging.getLogger(__name__)

SHIP_S: Final = 1.0
"""Seconds between calls to the log group; a program with much output must not wait for each."""
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin:/opt/pytorch/bin"
"""Search path of the script; the image's own programs precede the programs of its PyTorch environment."""


def serve_setup(root: Path) -> None:
    """Run the setup that the node's configuration names, if any."""
    config = parse_config(under_root(root, NODE_CONFIG_FILE).read_text())
    if config.setup is None or config.setup_sha256 is None or config.setup_timeout_s is None:
        return
    shipper = set_up_logging(under_root(root, SETUP_LOG_FILE))
    output = SetupOutput(config, shipper)
    environ = build_environment(config)

    def run(command: list[str], *, cwd: Path, deadline: float) -> None:
        write_line = logging.getLogger(Path(command[-1]).name).info
        run_program(command, cwd=cwd, environ=environ, deadline=deadline, write_line=write_line, on_poll=output.ship)

    source = SetupSource(url=config.setup, sha256=config.setup_sha256, timeout_s=config.setup_timeout_s)
    dependencies = SetupDependencies(root=root, read=lambda *at: _read(config.region, *at), run=run, flush=output.flush)
    run_setup_once(source, node_type=config.node_type, dependencies=dependencies)


def build_environment(config: NodeConfig) -> dict[str, str]:
    """Return the environment of the script and of pip, because systemd gives a service almost none."""
    return {
        "PATH": PATH,
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        # After updating a library, apt's hook would otherwise restart this very service.
        "NEEDRESTART_MODE": "l",
        "PIP_ROOT_USER_ACTION": "ignore",
        "AWS_DEFAULT_REGION": config.region,
        BUCKET_VARIABLE: config.bucket,
        "DEEPLEARNING_NODE_TYPE": config.node_type,
    }


def _read(region: str, bucket: str, key: str) -> bytes:
    # Connect each time: a client created without credentials would never look for them again.
    answer: Any = connect(region).s3.get_object(Bucket=bucket, Key=key)
    return bytes(answer["Body"].read())


class SetupOutput:
    """Sends the output to the node's log stream, beside its agent's lines; the setup never waits for it long."""

    def __init__(self, config: NodeConfig, shipper: LogShipper) -> None:
        self._config = config
        self._shipper = shipper
        self._is_connected = False
        self._not_before = 0.0

    def ship(self) -> None:
        """Send the oldest queued lines, at most every SHIP_S."""
        if time.monotonic() < self._not_before:
            return
        if self._connect():
            self._shipper.ship()
        self._not_before = time.monotonic() + SHIP_S

    def flush(self) -> None:
        """Send all queued lines, unless the log group cannot be reached."""
        if self._connect():
            self._shipper.flush()

    def _connect(self) -> bool:
        if not self._is_connected:
            try:
                stream = read_identity().instance_id
                self._shipper.connect(connect(self._config.region).logs, group=self._config.log_group, stream=stream)
                self._is_connected = True
            except (MetadataError, BotoCoreError, ClientError) as error:
                log.debug("no log group yet: %s", error)
        return self._is_connected
