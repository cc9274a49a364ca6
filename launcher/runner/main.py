"""Run this node's part of a job: report ready, read the spec, run the ranks."""

import _socket as socket  # importing socket is slow
import os
import select
import sys
from _collections_abc import Mapping  # importing collections is slow

from launcher.errors import LaunchError
from launcher.runner.between_jobs import SessionFingerprint, session_fingerprint, wait_for_wake
from launcher.runner.fast_imports import TYPE_CHECKING, json_string
from launcher.runner.inbox import Inbox
from launcher.runner.logs import JobLogs, ProcessLog
from launcher.runner.port import claim_port
from launcher.runner.process.environment import check_interfaces, process_environment, working_directory
from launcher.runner.process.processes import adopt_orphans, rename
from launcher.runner.process.reaper import RUN_ANOTHER_EXIT_CODE
from launcher.runner.process.supervisor import Supervisor
from launcher.runner.route import interface_to
from launcher.runner.run_lock import acquire_run_lock
from launcher.runner.runner_channel import RunnerChannel
from launcher.transport.protocol import CWD_MISSING, CWD_PRESENT, PREAMBLE, FrameType

if TYPE_CHECKING:
    from launcher.spec import NodeSpec
    from launcher.transport.messages import Request

EFA_DEVICES = "/sys/class/infiniband"
"""Directory with an entry for each Elastic Fabric Adapter and, on some instance types, each NVSwitch's adapter.

Same as in bootstrap.health.checks, which would be slow to import.
"""
EFA_DRIVER = "efa"
"""Driver of Elastic Fabric Adapters; other entries of EFA_DEVICES have another driver. Same as in
bootstrap.health.checks."""
SETUP_STATE_FILE = "/run/deeplearning/setup.json"
"""Same as in bootstrap.contract, which would be slow to import."""
BUSY_NAME = "launch-runner"
"""Process name during a job; its reaper keeps the name for idle runners."""


def main(at_login: SessionFingerprint, *, is_reused: bool) -> int:
    """Run this node's part of a job; return RUN_ANOTHER_EXIT_CODE if another job may follow, else 0.

    It is 0 even if ranks failed, because the launcher gets their exit codes in frames. `at_login` is the session's
    fingerprint; `is_reused` means that this session has run a job before.
    """
    channel = RunnerChannel(source=sys.stdin.fileno(), sink=sys.stdout.fileno())
    if not is_reused:
        channel.send_bytes(PREAMBLE)
    elif not wait_for_next_job(channel, at_login):
        return 0
    claim = claim_port()  # held until this process, and with it the job, ends
    channel.send(FrameType.READY, ready_payload(claim.port))
    spec = receive_spec(channel)
    if spec is None:
        return 0
    adopt_orphans()
    all_succeeded = run_ranks(spec, channel)
    return RUN_ANOTHER_EXIT_CODE if spec.keep_runner and all_succeeded else 0


def wait_for_next_job(channel: RunnerChannel, at_login: SessionFingerprint) -> bool:
    """Wait for another job; return False if none arrives, or if a new login would get another session."""
    if not wait_for_wake(channel) or session_fingerprint() != at_login:
        return False
    rename(BUSY_NAME)
    if has_gpus():
        # nvidia-smi may take a while, and the launcher waits only a moment for this answer.
        channel.send(FrameType.HEARTBEAT)
    return True


def has_gpus() -> bool:
    """Return True if this node has nvidia-smi; other nodes skip the imports."""
    # Repeat os.get_exec_path() here, because it imports warnings.
    directories = os.environ.get("PATH", os.defpath).split(":")
    return any(os.access(f"{directory}/nvidia-smi", os.X_OK) for directory in directories)


def ready_payload(port: int) -> bytes:
    """Return the payload of FrameType.READY, which the launcher needs before it sends the spec."""
    address = sshd_address(os.environ)
    address_json = "null" if address is None else json_string(address)
    node = f'"efa": {count_efa_devices()}, "setup": {json_string(read_setup_state())}, "gpus": {gpus_in_use_json()}'
    return f'{{"port": {port}, "address": {address_json}, {node}}}'.encode("ascii")


def read_setup_state(file: str = SETUP_STATE_FILE) -> str:
    """Return the JSON object that the agent's setup service wrote; empty without a setup."""
    try:
        with open(file, encoding="ascii") as state:
            return state.read()
    except OSError:
        return ""


def count_efa_devices(directory: str = EFA_DEVICES) -> int:
    """Return the number of this node's Elastic Fabric Adapters."""
    try:
        names = os.listdir(directory)
    except OSError:
        return 0
    return sum(read_driver(f"{directory}/{name}") == EFA_DRIVER for name in names)


def read_driver(device: str) -> str:
    """Return the name of a device's driver; empty if it has none."""
    try:
        return os.path.basename(os.readlink(f"{device}/device/driver"))
    except OSError:
        return ""


def gpus_in_use_json() -> str:
    """Return the report on GPUs as JSON (launcher.transport.gpus_in_use.GpusInUse)."""
    if not has_gpus():
        return "{}"
    import json

    from launcher.runner.gpu_usage import GpuQuery

    return json.dumps(GpuQuery(os.path.expanduser("~")).answer())


def receive_spec(channel: RunnerChannel) -> "NodeSpec | None":
    """Return the launcher's spec, or None if the launcher is gone."""
    inbox = Inbox()
    message = receive_message(channel, inbox)
    if not isinstance(message, (bytes, dict)):
        return message
    # Imported late: slow, and most jobs send no request (files, venv, frameworks, secrets) before the spec.
    from launcher.runner.requests.thread import serve_requests_before_spec

    return serve_requests_before_spec(channel, inbox, first=message)


def receive_message(channel: RunnerChannel, inbox: Inbox) -> "NodeSpec | Request | bytes | None":
    """Return the launcher's first message, or None if the launcher is gone."""
    while not channel.stop_requested:
        timeout = channel.keep_alive()
        select.select([channel.source], [channel.sink] if channel.has_pending else [], [], timeout)
        channel.flush()
        message = next(inbox.add(channel.receive()), None)
        if message is not None:
            return message
    return None


def run_ranks(spec: "NodeSpec", channel: RunnerChannel) -> bool:
    """Run the processes of `spec` to their end; return True if all succeeded without being stopped."""
    channel.grace_s = spec.grace_s
    has_lock = acquire_run_lock(spec, channel, home=os.path.expanduser("~"))
    if channel.stop_requested:
        return False
    supervisor = Supervisor(channel, grace_s=spec.grace_s)
    if not has_lock:
        for index in range(len(spec.processes)):
            supervisor.refuse(index, reason="processes of the previous run have not ended", code=1)
        return supervisor.run()
    logs = open_logs(spec, channel)
    interface = interface_to(spec.peer)
    cwd, is_home = working_directory(spec.cwd, home=os.path.expanduser("~"))
    channel.send(FrameType.CWD, CWD_MISSING if is_home else CWD_PRESENT)
    for index, process in enumerate(spec.processes):
        log = logs[index] if logs else None
        environment = process_environment(spec, process, base=os.environ, cwd=cwd, interface=interface)
        try:
            check_interfaces(environment, spec.interface_variables, routed=interface, present=interfaces)
        except LaunchError as error:
            supervisor.refuse(index, reason=str(error), code=error.exit_code)
        else:
            supervisor.start(process.command, index=index, environment=environment, cwd=cwd, log=log)
    return supervisor.run()


def open_logs(spec: "NodeSpec", channel: RunnerChannel) -> list[ProcessLog]:
    """Open a log for each process; if logs cannot be written, return none and send a note."""
    try:
        logs = JobLogs(os.path.expanduser("~"), spec.job_id)
        if has_gpus():
            from launcher.runner.gpu_usage import claim

            claim(logs.directory, spec.gpus)
        return [logs.open(process) for process in spec.processes]
    except OSError as error:
        channel.send(FrameType.NOTE, f"no logs are kept: {error.filename}: {error.strerror}".encode())
        return []


def interfaces() -> list[str]:
    """Return the names of all of this node's interfaces."""
    return [name for _, name in socket.if_nameindex()]


def sshd_address(environ: Mapping[str, str]) -> str | None:
    """Return the IPv4 address at which sshd was reached; None without sshd. See SSH_CONNECTION in ssh(1)."""
    words = environ.get("SSH_CONNECTION", "").split()
    address = words[2] if len(words) == 4 else ":"
    return None if ":" in address else address
