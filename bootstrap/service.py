"""The agent as a service: reads the configuration, then makes passes until it is told to stop."""

import logging
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bootstrap.agent import Agent, World
from bootstrap.aws import connect
from bootstrap.config import NodeConfig, parse_config, parse_signal_target
from bootstrap.contract import LOG_FILE, NODE_CONFIG
from bootstrap.errors import ConfigError
from bootstrap.failures import DELAYS
from bootstrap.imds import read_identity
from bootstrap.logs import set_up_logging
from bootstrap.node import place
from bootstrap.signals import SIGNALLED_FILE, Signals
from bootstrap.system import System

log = logging.getLogger(__name__)


def serve(root: Path) -> NoReturn:
    """Be the agent of this node."""
    # An exception rather than a flag: it also ends a wait. Any moment is a safe one to stop.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    shipper = set_up_logging(place(root, LOG_FILE))
    config = read_config(root)
    system = System(root)
    world = World(
        root=root,
        actions=system,
        identify=read_identity,
        connect=connect,
        shipper=shipper,
        nvidia_smi=system.nvidia_smi,
    )
    agent = Agent(config, world)
    log.info("agent of a %s of cluster %s", config.node_type, config.cluster_name)
    try:
        while True:
            time.sleep(agent.step())
    except Exception as error:  # whatever it is, the stack must not wait for it in vain; systemd starts us again
        agent.report_crash(error)
        raise
    finally:
        shipper.ship()


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def read_config(root: Path) -> NodeConfig:
    """Read the configuration; when it is bad, tell the stack, which can do something about it."""
    file = place(root, NODE_CONFIG)
    try:
        text = file.read_text()
    except FileNotFoundError as error:
        raise ConfigError(f"{NODE_CONFIG} must be written before the agent starts") from error
    try:
        return parse_config(text)
    except ConfigError as error:
        log.warning("%s: %s", NODE_CONFIG, error)
        report_bad_config(text, root)
        raise


def report_bad_config(text: str, root: Path) -> None:
    """Fail the deploy at once, if the configuration says that much."""
    target = parse_signal_target(text)
    if target is None:
        return
    try:
        identity = read_identity()
        signals = Signals(
            connect(target.region).cloudformation,
            target=target,
            instance_id=identity.instance_id,
            sent_file=place(root, SIGNALLED_FILE),
        )
        if not signals.sent:
            signals.failure(ConfigError.reason)
    except DELAYS as error:
        log.warning("cannot signal the bad configuration: %s", error)
