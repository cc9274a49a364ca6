"""End a synth on Ctrl-C with one line: Python would print a traceback through the CDK, whose import takes seconds."""

import os
import signal
import sys
from typing import Final, NoReturn

EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
STDERR: Final = 2
LINE: Final = "interrupted during synthesis: nothing was deployed or destroyed"


def exit_on_interrupt() -> None:
    """Exit with one line and EXIT_INTERRUPTED on SIGINT; call this before the import of aws_cdk."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the caller ignores it, as nohup's jobs do
        signal.signal(signal.SIGINT, _exit)


def _exit(_: int, __: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(LINE, file=sys.stderr, flush=True)
    # The exit removes the temporary files of the CDK's Node process, which a terminal interrupts too: its end would
    # print a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDERR)
    raise SystemExit(EXIT_INTERRUPTED)
