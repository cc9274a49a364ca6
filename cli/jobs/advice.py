"""Give advice about a job in the laptop's commands: the launcher's own advice is for a shell on the master."""

import re
import shlex
from typing import Final

from cli.jobs.records import Job
from cli.shared_options import invocation

SAME_ON_LAPTOP: Final = (
    (re.compile(r"\blaunch (?=python )"), "{dlcluster} run -- "),
    (re.compile(r"(?<=did you mean )launch (?:list|status)\b"), "{dlcluster} jobs"),
    (re.compile(r"(?<=did you mean )launch (?=logs|stop)"), "{dlcluster} "),
    # Of the three ways out, pull is for results: it brings them to a directory outside of the project.
    (
        re.compile("pull them into this directory, exclude them in .launchignore, or give (?=--sync-overwrite)"),
        "name them in .gitignore if jobs write them, or give ",
    ),
)
"""Suggestions of the launcher (launcher.job.exit_hints, launcher.sync.sender), each with its laptop's counterpart."""


def with_dlcluster_commands(text: str) -> str:
    """Return a message of the launcher with dlcluster's commands in place of the suggested ones."""
    dlcluster = invocation()
    for pattern, command in SAME_ON_LAPTOP:
        text = pattern.sub(command.format(dlcluster=dlcluster), text)
    return text


def log_command(job: Job) -> str | None:
    """Return the command that shows the whole output of the rank that failed; None if no rank has."""
    return None if job.failed_rank is None else f"{invocation()} logs {shlex.quote(job.id)} --rank {job.failed_rank}"
