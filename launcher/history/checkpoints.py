"""Tell from a command whether its checkpoints are lost with the nodes."""

import re
from collections.abc import Sequence

from bootstrap.contract import SHARED_DIR, TRAINER

TRAINER_MODULE = re.compile(rf"(?:{re.escape(TRAINER)}|/opt/deeplearning/current/trainer)(?:/__main__\.py)?/?")
"""Matches an argument that runs the bundled trainer."""
MODEL_PREFIX = "--model-prefix"
"""Trainer option that sets where checkpoints go."""


def saves_locally(command: Sequence[str]) -> bool:
    """Return True if the command is the bundled trainer and its checkpoints exist only on the nodes."""
    words = [part for word in command for part in word.split()]
    if not any(TRAINER_MODULE.fullmatch(word) for word in words):
        return False
    prefixes = [after for word, after in zip(words, [*words[1:], ""], strict=True) if word == MODEL_PREFIX]
    prefixes += [word.partition("=")[2] for word in words if word.startswith(f"{MODEL_PREFIX}=")]
    return not any(prefix.startswith(("s3://", "$")) or is_shared(prefix) for prefix in prefixes)


def is_shared(path: str) -> bool:
    """Return True if a path is in the directory that all nodes share."""
    return f"{path}/".startswith(f"{SHARED_DIR}/")
