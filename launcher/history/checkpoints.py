"""Tell from a command whether its checkpoints go with the nodes."""

import re
from collections.abc import Sequence

from bootstrap.contract import SHARED_DIR, TRAINER

TRAINER_MODULE = re.compile(rf"(?:{re.escape(TRAINER)}|/opt/deeplearning/current/trainer)(?:/__main__\.py)?/?")
"""Matches a word that runs the bundled trainer."""
MODEL_PREFIX = "--model-prefix"
"""Option of the trainer that says where checkpoints go."""


def saves_locally(command: Sequence[str]) -> bool:
    """Return True if the command is the bundled trainer, with checkpoints that only the nodes have."""
    words = [part for word in command for part in word.split()]
    if not any(TRAINER_MODULE.fullmatch(word) for word in words):
        return False
    prefixes = [after for word, after in zip(words, [*words[1:], ""], strict=True) if word == MODEL_PREFIX]
    prefixes += [word.partition("=")[2] for word in words if word.startswith(f"{MODEL_PREFIX}=")]
    return not any(prefix.startswith(("s3://", "$")) or is_shared(prefix) for prefix in prefixes)


def is_shared(path: str) -> bool:
    """Return True if a path is in the directory that all nodes share."""
    return f"{path}/".startswith(f"{SHARED_DIR}/")
