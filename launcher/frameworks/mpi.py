"""Plan Open MPI's mpirun on the first node, with the options that Horovod's documentation recommends.

See https://horovod.readthedocs.io/en/stable/mpi.html. mpirun itself reaches the other nodes by ssh, under the
options of launcher.transport.ssh, and passes variables on by name. The runners start mpirun's daemons on their
nodes (launcher.frameworks.orted), and so can end them and their ranks.
"""

from collections.abc import Sequence

from launcher.errors import UsageError
from launcher.frameworks.framework import Framework, JobTopology
from launcher.frameworks.orted.names import HANDOFF_TIMEOUT_S, PROGRAM, agent_command, program, socket_name
from launcher.spec import JobSpec, ProcessSpec
from launcher.transport.ssh import client_command

OPTIONS = ("-bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1", "-mca", "btl", "^openib")
ALWAYS_PASSED = ("PATH",)
"""Variables passed on so that the other nodes find the same Python."""
REMOTE_SHELL = "OMPI_MCA_plm_rsh_agent"
NO_TREE_SPAWN = {"OMPI_MCA_plm_rsh_no_tree_spawn": "1", "OMPI_MCA_orte_leave_session_attached": "1"}
"""Settings that keep a daemon in its runner's session and from starting other daemons, for which its node has no
key."""
INTERFACES = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "NCCL_SOCKET_IFNAME")


def mpirun_command(job: JobSpec) -> tuple[str, ...]:
    """Return mpirun's command line for `job`; it never contains values of variables."""
    slots = ",".join(f"{host.name}:{host.slots}" for host in job.hosts)
    passed = sorted({*ALWAYS_PASSED, INTERFACES[-1], *job.environment})
    exports = [word for name in passed for word in ("-x", name)]
    return ("mpirun", "-np", str(sum(host.slots for host in job.hosts)), "-H", slots, *OPTIONS, *exports, *job.command)


def plan(job: JobSpec, topology: JobTopology) -> Sequence[tuple[ProcessSpec, ...]]:
    """Plan mpirun on the first node, and on each other node the process that waits for its daemon's command."""
    run_id = f"{topology.job_id}-{topology.restart_count}"
    seconds = HANDOFF_TIMEOUT_S + job.grace_s
    agent = agent_command(run_id, client_command(job.hosts[0]), seconds=seconds)
    if len(job.hosts) > 1 and len(str(PROGRAM).split()) > 1:
        raise UsageError(f"mpirun on several nodes needs a launcher whose path has no blanks, got {str(PROGRAM)!r}")
    mpirun = ProcessSpec(
        name="mpirun",
        label="mpirun",
        command=mpirun_command(job),
        environment={REMOTE_SHELL: agent, **NO_TREE_SPAWN},
    )

    def daemon(node: int) -> ProcessSpec:
        name = f"orted {node}"
        command = (*program("await"), socket_name(run_id, job.hosts[node].name), f"{seconds:g}")
        return ProcessSpec(name=name, label=name, command=command, environment={}, is_required=False)

    return [(mpirun,), *((daemon(node),) for node in range(1, len(job.hosts)))]


FRAMEWORK = Framework(
    plan=plan,
    reserved_variables=(REMOTE_SHELL, *NO_TREE_SPAWN),
    inherited_variables=("OMP_NUM_THREADS",),
    interface_variables=INTERFACES,
    required_setting="horovod",
)
