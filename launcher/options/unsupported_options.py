"""Refuse options that launch lacks; for options of torchrun, mpirun and horovodrun, name the replacement."""

from collections.abc import Sequence

from launcher.errors import UsageError

LOGS = "leave it out: all output is shown, and each node keeps its ranks' output, see launch logs"
MPIRUN = "leave it out: --launcher mpi gives mpirun what Horovod's documentation advises"
REPLACEMENTS = {
    # torchrun
    "--rdzv-conf": "leave it out: --rejoin-timeout is the time to wait for missing nodes",
    "--local-addr": "leave it out: launch derives addresses and interface from the route between the nodes",
    "--monitor-interval": "leave it out: launch learns at once that a process has ended",
    "--start-method": "leave it out: every rank is a program of its own",
    "--run-path": "leave it out: python runs the script",
    "--logs-specs": LOGS,
    "--duplicate-stdout-filters": LOGS,
    "--duplicate-stderr-filters": LOGS,
    "--event-log-handler": "leave it out: launch status shows how a job ended",
    "--numa-binding": "leave it out, or begin the command with numactl and give --no-python",
    "--signals-to-handle": "leave it out: INT, TERM and HUP end the job on every node",
    "--shutdown-timeout": "--grace is the time between TERM and KILL",
    "--virtual-local-rank": "leave it out: LOCAL_RANK is the number of the rank's GPU",
    "--use-env": "leave it out: ranks have LOCAL_RANK in any case",
    # mpirun, horovodrun
    "--mca": MPIRUN,
    "-mca": MPIRUN,
    "--map-by": MPIRUN,
    "-map-by": MPIRUN,
    "--bind-to": MPIRUN,
    "-bind-to": MPIRUN,
    "-x": "--env KEY passes a variable of this shell on",
    "--gloo": "--framework horovod is Horovod over Gloo",
    "--mpi": "--launcher mpi is Horovod over MPI",
    "--network-interface": "leave it out: launch derives the interface from the route between the nodes",
    "--network-interfaces": "leave it out: launch derives the interface from the route between the nodes",
}


def unknown_option_error(option: str, *, known: Sequence[str]) -> UsageError:
    """Return the error for an unknown option, naming its replacement or the most similar option of `known`."""
    if replacement := _replacement(option):
        return UsageError(f"{option.partition('=')[0]} is not supported: {replacement}")
    return UsageError(f"unknown option {option}, {_suggestion(option, known)}supported: {', '.join(known)}")


def _suggestion(option: str, known: Sequence[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(option.partition("=")[0].replace("_", "-"), known, n=1, cutoff=0.9)
    return f"did you mean {nearest[0]}? " if nearest else ""


def _replacement(option: str) -> str | None:
    """Return the replacement of `option`, if known; torchrun accepts two spellings."""
    name = option.partition("=")[0]
    return REPLACEMENTS.get(name if not name.startswith("--") else name.replace("_", "-"))
