"""Run one of three programs between mpirun and its daemons, ``python3 .../frameworks/orted/__main__.py PROGRAM ...``.

    agent JOB SECONDS SSH... -- HOST COMMAND...   mpirun's remote shell, on the first node
    deliver SOCKET SECONDS                         started by agent on HOST over ssh; reads the command from its input
    await SOCKET SECONDS                           started by HOST's runner; runs the command

See docs/decisions/021-orted-under-the-runner.md.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from launcher.frameworks.orted.command_handoff import receive_command, run_command, send_command
from launcher.frameworks.orted.remote_shell import hand_over

if __name__ == "__main__":
    program, name, seconds, *args = sys.argv[1:]
    try:
        if program == "agent":
            code = hand_over(name, args, seconds=float(seconds))
        elif program == "deliver":
            code = send_command(name, sys.stdin.buffer.read(), seconds=float(seconds))
        else:
            code = run_command(receive_command(name, seconds=float(seconds)))
    except OSError as error:
        sys.exit(f"launch: {program} {name}: {error}")
    sys.exit(code)
