"""mpirun's remote shell (``plm_rsh_agent``): it has a daemon run by the runner that the launcher has on that node.

By ssh itself it would run below sshd, where nobody of ours ends it, and the ranks that it starts.
"""

import shlex
import subprocess
from collections.abc import Sequence

from launcher.frameworks.orted.names import place_of, program

SSH_S = 60.0
"""More than ssh takes when it gives up."""


def hand_over(job: str, words: Sequence[str], *, seconds: float) -> int:
    """Bring a command to its host, where it waits so long; returns ssh's exit code. Raises OSError.

    `words` are those of ssh, ``--``, the host, and the command in any number of words, for a shell to read.
    """
    end = words.index("--")
    ssh, host, command = words[:end], words[end + 1], " ".join(words[end + 2 :])
    there = shlex.join([*program("deliver"), place_of(job, host), f"{seconds:g}"])
    try:
        done = subprocess.run(
            [*ssh, "--", host, there],
            input=command.encode(errors="surrogateescape"),
            timeout=seconds + SSH_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{host} gave no answer within {seconds + SSH_S:g} s") from error
    return done.returncode
