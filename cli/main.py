"""``dlcluster VERB``: log in to a cluster, run something on it, look at it."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from cli.aws.clients import aws_errors
from cli.errors import ClusterError
from cli.options import Options, parse_options


def main(arguments: Sequence[str]) -> int:
    """Do what one verb says; returns the exit code."""
    try:
        options = parse_options(arguments)
        with aws_errors(options.region):
            code = _verb(options.verb)(options)
            sys.stdout.flush()
            return code
    except ClusterError as error:
        print(f"dlcluster: {error}{error.fix and f': {error.fix}'}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # Nobody reads the rest, as in ``dlcluster status | head -1``.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _verb(name: str) -> Callable[[Options], int]:
    """The ``main`` of the verb's module, alone: ssh waits for known-hosts at each login."""
    found: Callable[[Options], int] = import_module(f"cli.verbs.{name.replace('-', '_')}").main
    return found
