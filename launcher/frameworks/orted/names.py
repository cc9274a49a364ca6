"""Define the command lines of the three programs and the socket that connects two of them.

The launcher imports only this module of the package.
"""

from collections.abc import Sequence
from pathlib import Path

PROGRAM = Path(__file__).with_name("__main__.py")
"""Path of the programs, the same on all nodes, because every node runs the launcher's release."""


HANDOFF_TIMEOUT_S = 120.0
"""Seconds that the programs wait for each other, besides the grace period of an earlier run's processes."""


def program(name: str) -> list[str]:
    """Return the command line of a program, independent of PYTHON* variables and a user's packages."""
    return ["/usr/bin/python3", "-I", "-S", "-X", "utf8", str(PROGRAM), name]


def agent_command(job: str, ssh: Sequence[str], *, seconds: float) -> str:
    """Return mpirun's remote shell, to which it appends host and command. It splits at blanks and ignores quotes."""
    return " ".join([*program("agent"), job, f"{seconds:g}", *ssh, "--"])


def socket_name(job: str, host: str) -> str:
    """Return the socket's name for a job and host. Open MPI may drop the domain of a host name."""
    is_address = host.replace(".", "").isdigit()
    return f"launch-{job}-{host if is_address else host.partition('.')[0]}"
