"""Answer the launcher's requests on a node: a sync's, and those for frameworks, a Python and secrets."""

import io
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

from bootstrap.contract import MXNET_FRAMEWORKS_FILE, NODE_CONFIG_FILE
from launcher.errors import LaunchError
from launcher.runner.secret_values import read_secrets
from launcher.runner.sync.byte_queue import BUFFER, ByteQueue, NeighborLostError
from launcher.runner.sync.destination import Destination
from launcher.runner.sync.s3_fetch import fetch
from launcher.sync.ignore import Ignore
from launcher.sync.manifest import Manifest
from launcher.sync.request import KEEP_RESULTS, OVERWRITE, REFUSE, destination_path
from launcher.transport.messages import Answer, Ranges, Request, from_ranges, to_ranges


class RequestServer:
    """Answers requests; holds the state of a sync between them."""

    def __init__(
        self,
        byte_queue: ByteQueue,
        *,
        secrets: dict[str, str] | None = None,
        report: Callable[[Answer], None] = lambda answer: None,
    ) -> None:
        self._report = report
        self._secrets = {} if secrets is None else secrets
        self._from_launcher = cast(BinaryIO, io.BufferedReader(byte_queue, BUFFER))
        self._resources = ExitStack()
        self._destination: Destination | None = None
        self._needed: set[int] = set()
        self._listener: socket.socket | None = None
        self._operations: dict[str, Callable[..., Answer]] = {
            "compare": self._compare,
            "receive": self._receive,
            "fetch": self._fetch,
            "frameworks": self._list_frameworks,
            "venv": self._check_for_python,
            "secrets": self._read_secrets,
        }

    def _list_frameworks(self) -> Answer:
        return {"frameworks": installed_frameworks()}

    def _check_for_python(self, *, directory: str) -> Answer:
        return {"has_python": os.access(f"{directory}/bin/python", os.X_OK)}

    def _read_secrets(self, *, references: dict[str, str]) -> Answer:
        """Read the values for this node's ranks; only the variables' names go back to the launcher."""
        self._secrets.update(read_secrets(references))
        return {"secrets": sorted(references)}

    def close(self) -> None:
        """Release the directory and the port of a comparison after which no file was received."""
        self._resources.close()

    def answer(self, request: Request) -> Answer:
        """Carry out a request and return its answer; for a failure, the answer is the error."""
        operation, values = request["operation"], {name: request[name] for name in request if name != "operation"}
        try:
            return self._operations[operation](**values)
        except LaunchError as error:
            return {"error": str(error), "neighbor": isinstance(error, NeighborLostError)}
        except OSError as error:
            reason = error.strerror or str(error)
            return {"error": f"{error.filename}: {reason}" if error.filename else reason, "neighbor": False}

    def _compare(
        self, *, directory: str, manifest: str, patterns: list[str], on_changed: str, source: str | None
    ) -> Answer:
        """Prepare the directory; answer with the files that are needed and the port for receiving them.

        If prepared changes would overwrite files that were changed here, refuse by answering with their names instead.
        Also name this node's results that stay although the source has other files of the same names.
        """
        self._resources.close()
        path = destination_path(directory, home=Path.home())
        if source is not None and path.is_dir() and path.samefile(source):
            return {"needed": [], "port": 0}
        destination = Destination(path, Manifest.unpack(manifest), ignore=Ignore(patterns), home=Path.home())
        self._resources.callback(destination.release)
        changed = destination.changed()
        results = [] if on_changed == REFUSE else [file for file in changed if destination.is_result(file)]
        if on_changed in {REFUSE, KEEP_RESULTS} and len(results) < len(changed):
            self._resources.close()
            return {"needed": [], "port": 0, "changed": sorted({*changed} - {*results})}
        kept = frozenset(() if on_changed == OVERWRITE else changed)
        self._destination, self._needed = destination, destination.prepare(kept)
        kept_results = {"kept": results} if on_changed == KEEP_RESULTS and results else {}
        if not self._needed:
            self._resources.close()
            return {"needed": [], "port": 0, **kept_results}
        destination.check_space(destination.manifest.total_size(self._needed))
        self._listener = self._resources.enter_context(socket.create_server(("", 0)))
        return {"needed": to_ranges(self._needed), "port": self._listener.getsockname()[1], **kept_results}

    def _receive(self, *, identity: str, first: bool, following: list[Any] | None, forward: Ranges) -> Answer:
        """Receive the needed files, from the launcher if this node is the first, and forward them."""
        if self._destination is None or self._listener is None:
            raise ValueError("files come after a comparison")
        # Imported late: most syncs send nothing, and TLS is slow to import.
        from launcher.runner.sync.relay import Forwarder, accept, connect, relay

        with self._resources.pop_all(), ExitStack() as connections:
            stream = self._from_launcher
            if not first:
                before = connections.enter_context(accept(self._listener, identity))
                stream = connections.enter_context(cast(BinaryIO, before.makefile("rb", buffering=BUFFER)))
            forwarder = None
            if following is not None:
                name, address, port = following
                after = connections.enter_context(connect(address, port, name=name, identity=identity))
                forwarder = Forwarder(after, forward=from_ranges(forward))
            relay(stream, forwarder, destination=self._destination, needed=self._needed)
        return {"received": len(self._needed)}

    def _fetch(self, *, source: str, directory: str, shard: list[int] | None, timeout_s: float) -> Answer:
        """Download a prefix from a bucket; answers with the progress precede the last one."""
        path = destination_path(directory, home=Path.home())
        counts = fetch(
            source,
            path,
            shard=shard,
            timeout_s=timeout_s,
            report=lambda counts: self._report({"progress": counts}),
        )
        return {"fetched": counts}


def installed_frameworks(
    config: Path = Path(NODE_CONFIG_FILE), listed: Path = Path(MXNET_FRAMEWORKS_FILE)
) -> list[str] | None:
    """Return the installed frameworks; None if this machine is not a node of a cluster."""
    if not config.exists():
        return None
    try:
        return listed.read_text().split()
    except OSError:
        return []
