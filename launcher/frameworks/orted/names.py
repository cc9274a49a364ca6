"""How the three programs are called, and the place where two of them meet. What the launcher itself needs to know."""

from collections.abc import Sequence
from pathlib import Path

PROGRAM = Path(__file__).with_name("__main__.py")
"""Every node runs the release that the launcher is from."""


MEET_S = 120.0
"""What the programs wait for each other, besides the grace that an earlier attempt's processes have on a node."""


def program(name: str) -> list[str]:
    """The command line of one of the three programs; neither PYTHON* variables nor a user's packages can break it."""
    return ["/usr/bin/python3", "-I", "-S", "-X", "utf8", str(PROGRAM), name]


def agent_command(job: str, ssh: Sequence[str], *, seconds: float) -> str:
    """What mpirun is given, to which it adds the host and the command. It splits it at blanks and knows no quotes."""
    return " ".join([*program("agent"), job, f"{seconds:g}", *ssh, "--"])


def place_of(job: str, host: str) -> str:
    """Name under which the runner of a host waits for the command. Open MPI may leave a host name's domain out."""
    is_address = host.replace(".", "").isdigit()
    return f"launch-{job}-{host if is_address else host.partition('.')[0]}"
