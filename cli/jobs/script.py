"""Find the script of a command, and check that it is sent and that its processes train one model."""

import difflib
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cli.errors import UsageError
from cli.output import printable

SCRIPT: Final = ".py"
PYTHON: Final = re.compile(r"(?:.*/)?python[0-9.]*")
MAX_BYTES: Final = 1 << 20
"""Largest script in bytes to read for a note."""
DISTRIBUTED: Final = re.compile(
    r"distributed|init_process_group|accelerate|lightning|deepspeed|fsdp|mxnet|mx\.|horovod|ignite|transformers|composer"
    r"|torchtitan|megatron|mpi4py|\bray\b|jax|tensorflow|keras|RANK|WORLD_SIZE|MASTER_ADDR|DMLC_|_NODE|subprocess|runpy",
    re.IGNORECASE,
)
"""Matches libraries and variables through which processes find each other, and programs that start others."""
PAGE: Final = "docs/start/your-own-script.md, From one GPU"


def find_script(command: Sequence[str]) -> Path | None:
    """Return the Python file that a command runs, or None: ``train.py ...`` or ``python [-u] train.py ...``."""
    args = list(command)
    if len(args) == 1 and shlex.quote(args[0]) != args[0]:
        return None  # launch runs it as a shell's line
    if PYTHON.fullmatch(args[0]):
        args = args[1:]
        while args and args[0] in ("-u", "-O"):
            args = args[1:]
    return Path(args[0]) if args and args[0].endswith(SCRIPT) else None


def require_in_upload(script: Path | None) -> None:
    """Raise UsageError if a relative path leads out of the directory that is sent, or to nothing in it."""
    if script is None or script.is_absolute():
        return
    depth = 0
    for part in script.parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            raise UsageError(
                f"{printable(str(script))!r} is outside of {Path.cwd()}, which is sent: run dlcluster in the "
                "script's own directory"
            )
    if script.exists():
        return
    scripts = sorted(path.name for path in script.parent.glob(f"*{script.suffix}"))
    similar = difflib.get_close_matches(script.name, scripts, n=1)
    suggestion = f": did you mean {printable(str(script.with_name(similar[0])))}?" if similar else ""
    raise UsageError(f"{Path.cwd()} has no {str(script)!r}{suggestion}")


def note_independent_processes(script: Path | None, *, nodes: int) -> None:
    """Print a note if several processes would each train a model of their own."""
    if script is None or nodes < 2:
        return
    try:
        if script.stat().st_size > MAX_BYTES or DISTRIBUTED.search(script.read_text(errors="replace")):
            return
    except OSError:
        return  # the nodes may have it
    print(
        f"dlcluster: note: {nodes} nodes run {printable(str(script))}, which does not mention torch.distributed: "
        f"unless what it imports does, each process trains a model of its own ({PAGE})",
        file=sys.stderr,
    )
