"""Refuse options of launch, torchrun, mpirun, Slurm and sky that ``dlcluster run`` lacks; name the replacement."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from cli.command_group import ADVICE_BY_WORD
from cli.errors import UsageError
from cli.jobs.shell_scripts import PAGE

Function = TypeVar("Function", bound=Callable[..., Any])
ON_MASTER: Final = "only launch on the master has it: dlcluster push, then dlcluster run -- launch"
PROCESSES: Final = "--nproc-per-node is the number of processes on each node"
RENDEZVOUS: Final = (
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf"),
    *("--master-addr", "--master-port", "--node-rank"),
)
DEPLOY: Final = "cdk deploy -c"
SETS: Final = "says which nodes a cluster has"
SLURM: Final = f"{PAGE} says what replaces Slurm's options"
REPLACEMENTS: Final = {
    "--time": f"jobs have no time limit here; {SLURM}",
    **dict.fromkeys(("-p", "--partition"), f"there are no partitions here, a cluster is one; {SLURM}"),
    **dict.fromkeys(("-a", "--array"), f"there are no job arrays here; {SLURM}"),
    "--dependency": f"jobs do not depend on others here; {SLURM}",
    **dict.fromkeys(("-A", "--account"), f"there are no accounts here; {SLURM}"),
    **dict.fromkeys(("-q", "--qos"), f"there are no qualities of service here; {SLURM}"),
    "--mem": f"jobs have no memory limit here; {SLURM}",
    **dict.fromkeys(("-J", "--job-name"), "the option is --name"),
    **dict.fromkeys(("-N", "--nodes", "--num-nodes"), "the number of nodes is -n"),
    **dict.fromkeys(("-np", "--np", "--num-proc"), f"{PROCESSES}, -n the number of nodes"),
    **dict.fromkeys(("--ntasks-per-node", "--gpus-per-node"), PROCESSES),
    **dict.fromkeys(("-H", "--host", "--hosts"), "a job runs on the cluster's own nodes, -n 2 takes two of them"),
    **dict.fromkeys(RENDEZVOUS, "leave it out, the launcher connects the processes itself"),
    "--standalone": "-n 1 runs on one node",
    "-m": "a module goes after python, as in: dlcluster run -- python -m my.train",
    "-x": "--env KEY=VALUE sets a variable, --env KEY passes on one of this shell",
    **{name: f"{ON_MASTER} {name} ..." for name in ("--hostfile", "--min-nodes", "--sync-s3")},
    **dict.fromkeys(("-d", "--detach-run"), "the option is --detach"),
    **dict.fromkeys(("-c", "--cluster-name"), "the option is --cluster NAME"),
    **dict.fromkeys(("-y", "--yes"), "leave it out, run asks nothing before it starts a job"),
    **dict.fromkeys(
        ("--spot", "--use-spot", "--no-use-spot"), f"the setting purchase {SETS}, as in: {DEPLOY} purchase=spot"
    ),
    **dict.fromkeys(("--gpus", "--accelerators"), f"the setting instance_type {SETS}; {PROCESSES}"),
    **dict.fromkeys(("-t", "--instance-type"), f"the setting instance_type {SETS}, as in: {DEPLOY} instance_type=..."),
    "--image-id": f"the setting ami {SETS}, as in: {DEPLOY} ami=ami-...",
    "--disk-size": f"the setting root_volume_gib {SETS}, as in: {DEPLOY} root_volume_gib=200",
    "--zone": f"the setting availability_zone {SETS}",
    **dict.fromkeys(("--cloud", "--infra"), "there is one cloud, AWS; --region selects the region"),
    "--workdir": "the current directory is copied: cd there first",
    "--retry-until-up": "dlcluster up --until 18:00 waits for nodes, run --wait for their GPUs",
    "--idle-minutes-to-autostop": f"the setting idle_stop pauses an idle cluster, as in: {DEPLOY} idle_stop=30m",
    "--down": ADVICE_BY_WORD["autodown"],
}
"""Replacement for each option, in the words of this command."""
GIVEN: Final = "unsupported options"
"""Key of the context's values under which the given options are collected."""


def refuse_unsupported_options(function: Function) -> Function:
    """Add the unsupported options, hidden from the help, for refuse_given_options."""
    for name in REPLACEMENTS:
        function = click.option(
            name,
            f"unsupported{name.replace('-', '_')}",
            # Refuse it as the last word too, instead of asking for its value.
            is_flag=False,
            flag_value="",
            hidden=True,
            expose_value=False,
            callback=_note,
        )(function)
    return function


def refuse_given_options(ctx: click.Context) -> None:
    """Raise UsageError if the command line has unsupported options; it names all of them."""
    if names := ctx.meta.get(GIVEN, {}).values():
        raise UsageError("; ".join(f"no such option {name!r}: {REPLACEMENTS[name]}" for name in names))


def _note(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        # Two spellings of an option share their value, and that which was typed comes first.
        ctx.meta.setdefault(GIVEN, {}).setdefault(parameter.name, parameter.opts[0])
