"""Tell from a job's line whether its checkpoints are lost with the nodes."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from bootstrap.contract import BUCKET_VARIABLE, EFS_MOUNT_VARIABLE, SHARED_DIR, SHARED_VARIABLE, TRAINER_LINK
from launcher.spec import JobSpec

TRAINER_MODULE = re.compile(rf"(?:{re.escape(TRAINER_LINK)}|/opt/deeplearning/current/trainer)(?:/__main__\.py)?/?")
"""Matches an argument that runs the bundled trainer."""
MODEL_PREFIX = "--model-prefix"
"""Trainer option that sets where checkpoints go."""
S3 = "s3://"
SHARED_VARIABLES = (EFS_MOUNT_VARIABLE, SHARED_VARIABLE)
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
OUTLASTING = re.compile(
    rf"{S3}|\b(?:{'|'.join((BUCKET_VARIABLE, *SHARED_VARIABLES))})\b|(?<![\w./-]){re.escape(SHARED_DIR)}(?![\w.-])"
)
"""Matches a mention of storage that outlives the nodes."""


class CheckpointLocation(Enum):
    """Location of a job's checkpoints, as far as the command line shows the location."""

    OUTLASTING = "outlasting"
    """In S3 or the shared directory; for the user's own script, the command line names S3 or that directory."""
    LOCAL = "local"
    """Only on the nodes' disks. Known for the bundled trainer alone."""
    UNKNOWN = "unknown"


def checkpoint_location(job: JobSpec, *, cwd: str, bucket: str | None) -> CheckpointLocation:
    """Return where the job keeps its checkpoints; `bucket` is the cluster's, whose name a shell may have filled in."""
    words = [part for word in job.command for part in re.sub("[\"']", "", word).split()]
    directory = (job.sync.directory if job.sync else None) or cwd
    if any(TRAINER_MODULE.fullmatch(word) for word in words):
        prefix = _expand(_model_prefix(words), job.environment)
        is_kept = prefix.startswith(S3) or is_shared(prefix) or (is_shared(directory) and prefix[:1] not in "/$~")
        return CheckpointLocation.OUTLASTING if is_kept else CheckpointLocation.LOCAL
    texts = (*words, *job.environment.values())
    is_kept = is_shared(directory) or any(OUTLASTING.search(text) or (bucket and bucket in text) for text in texts)
    return CheckpointLocation.OUTLASTING if is_kept else CheckpointLocation.UNKNOWN


def is_shared(path: str) -> bool:
    """Return True if a path is in the directory that all nodes share."""
    return f"{path}/".startswith(f"{SHARED_DIR}/")


def _model_prefix(words: Sequence[str]) -> str:
    """Return the trainer's prefix; the default is relative to its directory."""
    prefix = "checkpoints"
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == MODEL_PREFIX:
            prefix = after
        elif word.startswith(f"{MODEL_PREFIX}="):
            prefix = word.partition("=")[2]
    return prefix


def _expand(text: str, environment: Mapping[str, str]) -> str:
    """Fill in the variables of the job and of the shared directory; only the nodes know the values of the others."""
    known = {**dict.fromkeys(SHARED_VARIABLES, SHARED_DIR), **environment}
    return VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), text)
