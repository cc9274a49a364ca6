"""Run the agent as a service: read the configuration, then make passes until stopped."""

import logging
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bootstrap.agent import Agent
from bootstrap.aws.clients import connect
from bootstrap.aws.imds import read_identity
from bootstrap.aws.log_shipping import LogShipper, set_up_logging
from bootstrap.aws.signals import SIGNALED_FILE, StackSignal
from bootstrap.cluster.record_validation import SHA256
from bootstrap.cluster.termination_notice import read_instance_metadata
from bootstrap.config import NodeConfig, SignalTarget, parse_config, parse_signal_target
from bootstrap.contract import LOG_FILE, NODE_CONFIG_FILE, release_name
from bootstrap.dependencies import AgentDependencies
from bootstrap.errors import ConfigError
from bootstrap.failures import RETRYABLE_ERRORS
from bootstrap.files.paths import under_root
from bootstrap.health.checks import answers_ssh
from bootstrap.system import System

log = logging.getLogger(__name__)


def serve(root: Path) -> NoReturn:
    """Run the agent until a signal ends it."""
    # Raise an exception instead of setting a flag, because it also ends a sleep. The agent may stop at any moment.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    shipper = set_up_logging(under_root(root, LOG_FILE))
    config = read_config(root)
    log.info("agent of a %s of cluster %s", config.node_type, config.cluster_name)
    try:
        agent = Agent(config, _create_agent_dependencies(root, shipper))
        while True:
            time.sleep(agent.run_pass())
    except Exception as error:  # report any crash, so that the stack does not wait in vain; systemd restarts the agent
        log.exception("agent crashed: %s", type(error).__name__)
        shipper.ship()  # CloudFormation terminates the node once it has the signal
        if config.fails_deploy:
            report(config.signal_target, f"agent-crashed {type(error).__name__}", root)
        raise
    finally:
        shipper.ship()


def _create_agent_dependencies(root: Path, shipper: LogShipper) -> AgentDependencies:
    system = System(root)
    return AgentDependencies(
        root=root,
        system=system,
        identify=read_identity,
        read_metadata=read_instance_metadata,
        connect=connect,
        shipper=shipper,
        nvidia_smi=system.nvidia_smi,
        resolve=socket.gethostbyname,
        answers_ssh=answers_ssh,
        release=own_release(Path(__file__).resolve().parents[1]),
        gpu_percent=system.gpu_percent,
        broadcast_to_terminals=system.broadcast_to_terminals,
    )


def own_release(directory: Path) -> str:
    """Return the release of the code in `directory`, whose name is a bundle's hash; empty for other directories."""
    return release_name(directory.name) if SHA256.fullmatch(directory.name) else ""


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def read_config(root: Path) -> NodeConfig:
    """Read the configuration; report a bad one to the stack."""
    file = under_root(root, NODE_CONFIG_FILE)
    try:
        text = file.read_text()
    except FileNotFoundError as error:
        raise ConfigError(f"{NODE_CONFIG_FILE} must be written before the agent starts") from error
    try:
        return parse_config(text)
    except ConfigError as error:
        log.warning("%s: %s", NODE_CONFIG_FILE, error)
        if target := parse_signal_target(text):
            report(target, ConfigError.reason, root)
        raise


def report(target: SignalTarget, reason: str, root: Path) -> None:
    """Signal a failure with a new client, because the failed agent's client may be broken."""
    try:
        stack_signal = StackSignal(
            connect(target.region).cloudformation,
            target=target,
            instance_id=read_identity().instance_id,
            sent_file=under_root(root, SIGNALED_FILE),
        )
        if not stack_signal.is_settled and not stack_signal.send_failure(reason):
            # Another machine would crash in the same way, so do not request one.
            stack_signal.mark_settled(reason)
    except RETRYABLE_ERRORS as error:
        log.warning("cannot report the failure %s: %s", reason, error)
