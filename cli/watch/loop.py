"""Repeat a snapshot of the cluster until Ctrl-C, or until the cluster or the credentials are gone."""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import NoReturn

from cli.aws.clients import aws_errors, create_clients
from cli.cluster_context import look_up_context
from cli.errors import ClusterError, CredentialsError, NoClusterError, UsageError
from cli.output import printable
from cli.shared_options import Selection
from cli.watch.display import display
from cli.watch.snapshot import Watcher


def watch(
    selection: Selection, *, interval_s: float, as_json: bool, sleep: Callable[[float], None] = time.sleep
) -> NoReturn:
    """Take a snapshot every `interval_s` seconds until Ctrl-C. Raises ClusterError if further ones would be useless."""
    clients = create_clients(selection.region)
    with display(as_json=as_json) as show, closing(Watcher()) as watcher:
        # If the first snapshot fails, fail like status, because nothing has been shown yet.
        show(watcher.take_snapshot(look_up_context(selection, clients)))
        while True:
            sleep(interval_s)
            try:
                with aws_errors(selection.region):
                    show(watcher.take_snapshot(look_up_context(selection, clients)))
            except (CredentialsError, NoClusterError, UsageError):
                raise
            except ClusterError as error:
                print(f"dlcluster: {printable(str(error))}; trying again", file=sys.stderr, flush=True)
