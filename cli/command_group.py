"""List the commands of ``dlcluster`` without importing them, and suggest commands for unknown words."""

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

import click

from cli.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM: Final = "dlcluster"
COMMANDS_BY_PACKAGE: Final = {
    "cli.commands.cluster": {
        "list": "List the clusters of a region.",
        "status": "List the nodes of a cluster.",
        "check": "Compare the nodes' GPUs and networks, and name bad ones.",
        "extend": "Postpone a cluster's automatic pause, and deploy.",
        "cost": "Show a cluster's cost per hour, and its cost so far.",
        "why": "Explain why a deploy failed or a node is missing.",
        "up": "Start all nodes in the first zone with capacity for all.",
        "pause": "Terminate all nodes, and keep the cluster.",
        "resume": "Bring the nodes of a paused cluster back.",
        "resize": "Change the number of workers, and deploy.",
        "setup": "Run the deployed setup on older nodes.",
        "preflight": "Check quotas, permissions and settings before a deploy.",
    },
    "cli.commands.image": {"bake": "Make an image of a worker whose setup has run."},
    "cli.commands.storage": {
        "delete-bucket": "Delete a bucket that a deleted cluster left.",
        "delete-storage": "Delete a file system that a deleted cluster left.",
    },
    "cli.commands.jobs": {
        "run": "Run a command on all nodes, with the current directory.",
        "jobs": "List the jobs that were started on the master.",
        "logs": "Show a job's output.",
        "stop": "Stop a job on all nodes.",
        "push": "Copy a directory to every node.",
        "pull": "Copy a file or folder from a node.",
    },
    "cli.commands.access": {
        "ssh": "Log in to a node, or run a command there.",
        "allow-ip": "Let more addresses reach the SSH port.",
        "tunnel": "Forward a node's port to this machine.",
        "tensorboard": "Run TensorBoard on the master and show it here.",
        "jupyter": "Run JupyterLab on the master and show it here.",
        "ssh-config": "Print a block for ~/.ssh/config.",
        "known-hosts": "Print verified host keys.",
        "ssm-proxy": "Connect ssh to a node of a private cluster.",
        "policy": "Print the IAM policy that the cluster's users need.",
    },
    "cli.commands": {"completion": "Print the completion script for your shell."},
}
"""One-line help of each command, grouped by package; the command's module defines it as ``command``."""
COMMANDS: Final = {name: text for commands in COMMANDS_BY_PACKAGE.values() for name, text in commands.items()}
DEPLOY_AND_RUN: Final = "cdk deploy creates a cluster, dlcluster run starts a job"
ADVICE_BY_WORD: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("deploy", "create", "update", "apply", "create-cluster", "update-cluster"),
        "cdk deploy creates or updates a cluster",
    ),
    **dict.fromkeys(
        ("down", "destroy", "delete", "remove", "terminate", "delete-cluster"),
        "cdk destroy removes a cluster, in the directory with its cdk.json",
    ),
    **dict.fromkeys(("ls", "clusters", "list-clusters"), "dlcluster list lists the clusters of a region"),
    **dict.fromkeys(
        ("nodes", "node", "info", "sinfo", "top", "htop", "describe", "describe-cluster", "describe-cluster-instances"),
        "dlcluster status lists the nodes",
    ),
    **dict.fromkeys(("scontrol",), "dlcluster status lists the nodes, dlcluster jobs the jobs"),
    **dict.fromkeys(("price", "bill", "cost-report"), "dlcluster cost shows a cluster's cost per hour and so far"),
    **dict.fromkeys(("sleep", "hibernate", "suspend"), "dlcluster pause terminates all nodes and keeps the cluster"),
    **dict.fromkeys(
        ("update-compute-fleet",), "dlcluster pause terminates all nodes, dlcluster resume brings them back"
    ),
    "autostop": "the setting idle_stop, such as 30m, pauses an idle cluster",
    "autodown": "the settings expires and expiry_action=delete remove a cluster at a time that you choose",
    **dict.fromkeys(("show-gpus", "gpus"), "docs/start/costs.md lists instance types with their GPUs and prices"),
    **dict.fromkeys(("scale", "grow", "shrink"), "dlcluster resize 3 makes a cluster of the master and three workers"),
    **dict.fromkeys(("start", "wake"), "dlcluster resume brings the nodes of a paused cluster back"),
    **dict.fromkeys(
        ("launch", "exec", "train", "submit", "sbatch", "srun", "salloc"),
        "dlcluster run -- train.py runs train.py on all nodes",
    ),
    **dict.fromkeys(("cancel", "kill", "scancel"), "dlcluster stop ends a job, cdk destroy removes a cluster"),
    **dict.fromkeys(("queue", "ps", "squeue", "sacct", "history"), "dlcluster jobs lists the jobs"),
    **dict.fromkeys(
        ("events", "export-cluster-logs", "get-cluster-log-events", "get-cluster-stack-events"),
        "dlcluster why explains a failed deploy, with the nodes' last log lines",
    ),
    **dict.fromkeys(("test", "health", "diagnose"), "dlcluster check compares the nodes' GPUs and networks"),
    **dict.fromkeys(("notebook", "lab"), "dlcluster jupyter runs JupyterLab on the master"),
    **dict.fromkeys(("login", "connect", "shell"), "dlcluster ssh logs in to the master"),
    **dict.fromkeys(("allow", "whitelist", "firewall"), "dlcluster allow-ip lets an address reach the SSH port"),
    **dict.fromkeys(("sync", "rsync", "scp", "cp"), "dlcluster push copies to every node, dlcluster pull from one"),
    **dict.fromkeys(("configure", "init", "validate"), "dlcluster preflight checks the settings in cdk.json"),
    **dict.fromkeys(("image", "snapshot", "create-image", "build-image"), "dlcluster bake makes an image of a worker"),
    "sky": f"{DEPLOY_AND_RUN}; docs/from-skypilot.md",
    "pcluster": f"{DEPLOY_AND_RUN}; docs/from-slurm.md",
    **dict.fromkeys(("version",), "dlcluster --version prints it"),
}
"""Advice for each word that people try as a command."""
ADVICE_BY_SUBCOMMAND: Final[Mapping[tuple[str, str], str]] = {
    ("jobs", "launch"): "dlcluster run --durable --detach -- train.py starts a job that outlives its nodes",
    **dict.fromkeys((("jobs", "cancel"), ("jobs", "stop")), "dlcluster stop ID stops a job"),
    ("jobs", "logs"): "dlcluster logs -f ID shows a job's output",
    **dict.fromkeys((("jobs", "queue"), ("jobs", "list"), ("jobs", "ls")), "dlcluster jobs lists the jobs"),
}
"""Advice for each word that people try after a command which takes none."""
SRUN: Final = "srun"
DESTRUCTIVE: Final = frozenset({"pause", "resize", "stop", "delete-bucket", "delete-storage"})
"""Commands never suggested for a misspelling, because they destroy something."""
MIN_SIMILARITY: Final = 0.6
"""Smallest ratio of difflib for suggesting a command that destroys nothing."""
MISSPELLED: Final = 0.85
"""Smallest ratio for all other words: ``lauch`` is launch, ``drain`` is not train."""


class CommandGroup(click.Group):
    """Command group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(module_name(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            _refuse(args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] COMMAND ...")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


def module_name(command: str) -> str:
    """Return the name of the module that defines a command."""
    package = next(package for package, commands in COMMANDS_BY_PACKAGE.items() if command in commands)
    return f"{package}.{command.replace('-', '_')}"


def _refuse(args: Sequence[str]) -> NoReturn:
    word = args[0]
    if word == SRUN:
        from cli.jobs.srun import run_line

        if (line := run_line(args[1:])) is not None:
            raise UsageError(f"unknown command {word!r}: write {line}")
    similar = _similar(word)
    if similar is not None and similar in ADVICE_BY_WORD:
        raise UsageError(f"unknown command {word!r}: {ADVICE_BY_WORD[similar]}")
    if similar is not None:
        raise UsageError(f"unknown command {word!r}: did you mean {similar}?")
    raise UsageError(f"unknown command {word!r}; available commands: {', '.join(COMMANDS)}")


def _similar(word: str) -> str | None:
    """Return the command or the word with advice that is most like `word`; None if none is alike.

    The only command that begins with `word` comes first: ``stat`` is a part of status, and merely resembles start.
    """
    if word in ADVICE_BY_WORD:
        return word
    if len(longer := [command for command in COMMANDS if command.startswith(word)]) == 1:
        return longer[0]
    misspelled = difflib.get_close_matches(word, [*COMMANDS, *ADVICE_BY_WORD], n=1, cutoff=MISSPELLED)
    harmless = [command for command in COMMANDS if command not in DESTRUCTIVE]
    return next(iter(misspelled or difflib.get_close_matches(word, harmless, n=1, cutoff=MIN_SIMILARITY)), None)
