"""Plan MXNet's parameter servers: ps-lite's DMLC_* variables.

One scheduler runs on the first node, servers are spread over all nodes, and one worker per machine drives all of
its GPUs. All of them run the same command: in a scheduler and in a server ``import mxnet`` serves, and ends the
process when the workers are done. ps-lite binds to the address in its variables, so it never gets a host name.
See https://ps-lite.readthedocs.io/en/latest/ (Environment Variables). ps-lite numbers the workers as they
arrive; DMLC_TASK_ID, as dmlc's own launchers set it, is a worker's index in the order of the hosts file.
"""

from collections.abc import Sequence

from launcher.errors import UsageError
from launcher.frameworks.framework import RESTART_COUNT, RUN_ID, Framework, JobTopology
from launcher.spec import JobSpec, ProcessSpec

INTERFACE = "DMLC_INTERFACE"
ADDRESS = "DMLC_NODE_HOST"
LOOPBACK = "lo"


def plan(job: JobSpec, topology: JobTopology) -> Sequence[tuple[ProcessSpec, ...]]:
    """Plan the workers and servers of each node, and on the first node the scheduler too."""
    user_interface = job.environment.get(INTERFACE)
    if user_interface == LOOPBACK and not topology.is_single_machine:
        # ps-lite waits indefinitely for nodes that cannot reach each other.
        raise UsageError(f"{INTERFACE} must be the interface that leads to the other nodes, got {LOOPBACK!r}")
    shared = {
        "DMLC_NUM_WORKER": str(sum(host.slots for host in job.hosts)),
        "DMLC_NUM_SERVER": str(job.servers),
        "DMLC_PS_ROOT_URI": topology.addresses[0],
        "DMLC_PS_ROOT_PORT": str(topology.port),
        RESTART_COUNT: str(topology.restart_count),
        RUN_ID: topology.job_id,
    }

    def process(role: str, name: str, node: int, **more: str) -> ProcessSpec:
        # If both are set, ps-lite takes the address and ignores the user's interface.
        address = {} if user_interface else {ADDRESS: topology.addresses[node]}
        return ProcessSpec(
            name=name,
            label=name,
            command=job.command,
            environment={**shared, **address, "DMLC_ROLE": role, **more},
            is_required=role == "worker",
        )

    nodes: list[list[ProcessSpec]] = [[] for _ in job.hosts]
    nodes[0].append(process("scheduler", "scheduler", 0))
    for server in range(job.servers):
        node = server % len(nodes)
        nodes[node].append(process("server", f"server {server}", node))
    workers = [node for node, host in enumerate(job.hosts) for _ in range(host.slots)]
    for worker, node in enumerate(workers):
        nodes[node].append(process("worker", f"worker {worker}", node, DMLC_TASK_ID=str(worker)))
    return [tuple(processes) for processes in nodes]


FRAMEWORK = Framework(
    plan=plan,
    reserved_variables=(
        *("DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_ROLE", "DMLC_TASK_ID"),
        *(ADDRESS, RESTART_COUNT, RUN_ID),
    ),
    inherited_variables=("OMP_NUM_THREADS", INTERFACE, "PS_VERBOSE"),
    interface_variables=(INTERFACE,),
    has_servers=True,
    required_setting="mxnet",
)
