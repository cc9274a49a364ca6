"""Name what tests of stacks share: the repository, and the type of the ``synthesize`` fixture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

Synthesize = Callable[..., dict[str, Any]]
