"""The runner's main: say ready, read the spec, run the ranks."""

import _socket as socket  # socket itself takes long to import
import json
import os
import select
import sys
from collections.abc import Mapping

from launcher.errors import LaunchError
from launcher.frames import PREAMBLE, Kind, encode
from launcher.runner.environment import check_interfaces, process_environment, working_directory
from launcher.runner.inbox import Inbox
from launcher.runner.link import Link
from launcher.runner.logs import JobLogs, ProcessLog
from launcher.runner.processes import adopt_orphans
from launcher.runner.route import interface_to
from launcher.runner.supervisor import Supervisor
from launcher.runner.turn import await_turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.spec import NodeSpec

PORTS = 8192
PORTS_TRIED = 16


def main() -> int:
    """Run this node's part of a job; 0 whatever the processes' exit codes are."""
    link = Link(source=sys.stdin.fileno(), sink=sys.stdout.fileno())
    ready = {"port": free_port(), "address": own_address(os.environ), "gpus": gpus_in_use()}
    link.send_bytes(PREAMBLE + encode(Kind.READY, json.dumps(ready).encode("ascii")))
    spec = receive_spec(link)
    if spec is not None:
        adopt_orphans()
        run(spec, link)
    return 0


def has_gpus() -> bool:
    """Whether this node can say anything of GPUs; the others need not import what it takes."""
    return any(os.access(f"{directory}/nvidia-smi", os.X_OK) for directory in os.get_exec_path())


def gpus_in_use() -> dict[str, object]:
    """What launcher.gpus.GpusInUse reads."""
    if not has_gpus():
        return {}
    from launcher.runner.gpus import GpuQuestion

    return GpuQuestion(os.path.expanduser("~")).answer()


def receive_spec(link: Link) -> "NodeSpec | None":
    """What the launcher wants to be run; None when it is gone instead."""
    inbox = Inbox()
    while not link.over:
        timeout = link.keep_alive()
        select.select([link.source], [link.sink] if link.pending else [], [], timeout)
        link.flush()
        for message in inbox.take(link.receive()):
            if not isinstance(message, (bytes, dict)):
                return message
            # Not before: what it takes is slow to import, and most jobs send no files.
            from launcher.runner.sync import sync_before_spec

            return sync_before_spec(link, inbox, first=message)
    return None


def run(spec: "NodeSpec", link: Link) -> None:
    """Start the processes that `spec` names and see them to their end."""
    link.grace_s = spec.grace_s
    is_alone = await_turn(spec, link, home=os.path.expanduser("~"))
    if link.over:
        return
    supervisor = Supervisor(link, grace_s=spec.grace_s)
    if not is_alone:
        for index in range(len(spec.processes)):
            supervisor.refuse(index, reason="processes of the attempt before this one do not end", code=1)
        supervisor.run()
        return
    logs = open_logs(spec, link)
    interface = interface_to(spec.peer)
    cwd = working_directory(spec.cwd, home=os.path.expanduser("~"))
    present = [name for _, name in socket.if_nameindex()]
    for index, process in enumerate(spec.processes):
        log = logs[index] if logs else None
        environment = process_environment(spec, process, base=os.environ, interface=interface)
        try:
            check_interfaces(environment, spec.interface_variables, present=present)
        except LaunchError as error:
            supervisor.refuse(index, reason=str(error), code=error.exit_code)
        else:
            supervisor.start(process.command, index=index, environment=environment, cwd=cwd, log=log)
    supervisor.run()


def open_logs(spec: "NodeSpec", link: Link) -> list[ProcessLog]:
    """A log for each process; none, and a note, where they cannot be written."""
    try:
        logs = JobLogs(os.path.expanduser("~"), spec.job_id)
        if has_gpus():
            from launcher.runner.gpus import claim

            claim(logs.directory, spec.gpus)
        return [logs.open(process) for process in spec.processes]
    except OSError as error:
        link.send(Kind.NOTE, f"no logs are kept: {error.filename}: {error.strerror}".encode())
        return []


def free_port(port_range: str = "/proc/sys/net/ipv4/ip_local_port_range") -> int:
    """A TCP port that nobody on this node uses now, and that no outgoing connection will be given."""
    with open(port_range) as file:
        ephemeral = int(file.read().split()[0])
    lowest = max(1024, ephemeral - PORTS)
    # None where every port may be given to an outgoing connection, as some administrators have it.
    span = max(0, ephemeral - lowest)
    drawn = [lowest + int.from_bytes(os.urandom(4), "big") % span for _ in range(PORTS_TRIED if span else 0)]
    for port in [*drawn, 0]:
        probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            probe.bind(("", port))
            return int(probe.getsockname()[1])
        except OSError:
            continue
        finally:
            probe.close()
    raise OSError("no TCP port is free")


def own_address(environ: Mapping[str, str]) -> str | None:
    """Get this node's IPv4 address as sshd was reached by it; None without sshd. See SSH_CONNECTION in ssh(1)."""
    words = environ.get("SSH_CONNECTION", "").split()
    address = words[2] if len(words) == 4 else ":"
    return None if ":" in address else address
