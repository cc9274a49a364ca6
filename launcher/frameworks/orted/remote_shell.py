"""Act as mpirun's remote shell (``plm_rsh_agent``): have the node's runner start the daemon.

Started by ssh itself, the daemon would run below sshd, where the runner could not end it or its ranks.
"""

import shlex
import subprocess
from collections.abc import Sequence

from launcher.frameworks.orted.names import program, socket_name

SSH_EXTRA_TIMEOUT_S = 60.0
"""Seconds added to the deadline for ssh, which gives up sooner."""


def hand_over(job: str, args: Sequence[str], *, seconds: float) -> int:
    """Deliver a command to its host within `seconds` and return ssh's exit code. Raises OSError.

    `args` are ssh's, then ``--``, the host, and the command in any number of words, for a shell to parse.
    """
    end = args.index("--")
    ssh, host, command = args[:end], args[end + 1], " ".join(args[end + 2 :])
    there = shlex.join([*program("deliver"), socket_name(job, host), f"{seconds:g}"])
    try:
        done = subprocess.run(
            [*ssh, "--", host, there],
            input=command.encode(errors="surrogateescape"),
            timeout=seconds + SSH_EXTRA_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{host} did not answer within {seconds + SSH_EXTRA_TIMEOUT_S:g} s") from error
    return done.returncode
