"""Say what to do without other launchers' options that launch does not have."""

LOGS = "leave it out: all output is shown, and each node keeps what its ranks say, see launch logs"
MPIRUNS = "leave it out: --launcher mpi gives mpirun what Horovod's documentation advises"
REFUSED = {
    # torchrun
    "--rdzv-conf": "leave it out: --rejoin-timeout is how long missing nodes are waited for",
    "--local-addr": "leave it out: launch derives addresses and interface from the route between the nodes",
    "--monitor-interval": "leave it out: launch hears of a process's end at once",
    "--start-method": "leave it out: every rank is a program of its own",
    "--run-path": "leave it out: python runs the script",
    "--logs-specs": LOGS,
    "--duplicate-stdout-filters": LOGS,
    "--duplicate-stderr-filters": LOGS,
    "--event-log-handler": "leave it out: launch status shows what became of a job",
    "--numa-binding": "leave it out, or begin the command with numactl and give --no-python",
    "--signals-to-handle": "leave it out: INT, TERM and HUP end the job on every node",
    "--shutdown-timeout": "--grace is the time between TERM and KILL",
    "--virtual-local-rank": "leave it out: LOCAL_RANK is the number of the rank's GPU",
    "--use-env": "leave it out: ranks have LOCAL_RANK in any case",
    # mpirun, horovodrun
    "--mca": MPIRUNS,
    "-mca": MPIRUNS,
    "--map-by": MPIRUNS,
    "-map-by": MPIRUNS,
    "--bind-to": MPIRUNS,
    "-bind-to": MPIRUNS,
    "-x": "--env KEY passes a variable of this shell on",
    "--gloo": "--engine horovod is Horovod over Gloo",
    "--mpi": "--launcher mpi is Horovod over MPI",
    "--network-interface": "leave it out: launch derives the interface from the route between the nodes",
    "--network-interfaces": "leave it out: launch derives the interface from the route between the nodes",
}


def alternative(option: str) -> str | None:
    """Return what to do without `option`, if known; torchrun takes both spellings."""
    name = option.partition("=")[0]
    return REFUSED.get(name if not name.startswith("--") else name.replace("_", "-"))
