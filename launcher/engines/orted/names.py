"""Name the three programs and the socket that connects two of them; the launcher imports only this."""

from collections.abc import Sequence
from pathlib import Path

PROGRAM = Path(__file__).with_name("__main__.py")
"""Every node runs the launcher's release, so the path is the same on all of them."""


RENDEZVOUS_S = 120.0
"""Seconds that the programs wait for each other, besides the grace of an earlier attempt's processes."""


def program(name: str) -> list[str]:
    """Return the command line of a program, which neither PYTHON* variables nor a user's packages can break."""
    return ["/usr/bin/python3", "-I", "-S", "-X", "utf8", str(PROGRAM), name]


def agent_command(job: str, ssh: Sequence[str], *, seconds: float) -> str:
    """Return mpirun's remote shell, to which it adds host and command. It splits at blanks and knows no quotes."""
    return " ".join([*program("agent"), job, f"{seconds:g}", *ssh, "--"])


def socket_name(job: str, host: str) -> str:
    """Return the socket's name for a job and host. Open MPI may leave out the domain of a host name."""
    is_address = host.replace(".", "").isdigit()
    return f"launch-{job}-{host if is_address else host.partition('.')[0]}"
