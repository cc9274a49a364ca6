"""Serves the control plane over HTTP: moto with what it lacks, one request at a time."""

import io
import os
import socket
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

from local.aws import buckets, trail
from local.aws.autoscaling import activities, health, hooks, launch, lifecycle
from local.aws.calls import Call
from local.aws.cloudformation import change_sets, events, resource_types, rules, signals, stacks
from local.aws.ec2 import (
    addresses,
    elastic_addresses,
    images,
    instance_types,
    reboots,
    refusals,
    routes,
    security_groups,
    zones,
)
from local.aws.failures import Failures
from local.aws.permissions.callers import session_of
from local.aws.permissions.judge import judge_call
from local.aws.request_log import RequestLog
from local.aws.serial import LOCK
from local.network.changes import ChangeWriter, may_change

MOTO_VERSION = "5.2.5"
"""The one whose private names the rest of this package wraps."""

_PARTS = (
    stacks,
    rules,
    events,
    change_sets,
    trail,
    signals,
    security_groups,
    resource_types,
    buckets,
    routes,
    launch,
    activities,
    lifecycle,
    hooks,
    health,
    addresses,
    elastic_addresses,
    instance_types,
    refusals,
    reboots,
    zones,
)
"""What is added to moto, inner parts first."""


class LocalAwsError(Exception):
    """Why the server cannot run, in one line."""


def serve(
    *,
    host: str,
    port: int,
    region: str,
    request_log: Path | None = None,
    failures: Path | None = None,
    changes: Path | None = None,
) -> BaseWSGIServer:
    """A server that listens already; the caller runs its ``serve_forever``."""
    if version("moto") != MOTO_VERSION:
        raise LocalAwsError(f"unsupported moto version {version('moto')}, must be {MOTO_VERSION}")
    _prepare(region)
    try:
        log = RequestLog(request_log) if request_log else None
        if changes:
            LOCK.changed = ChangeWriter(changes).signal
    except OSError as error:
        raise LocalAwsError(f"cannot write {error.filename}: {error.strerror}") from error
    try:
        # bound here, as werkzeug would end the process when the port is taken
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(128)
            fd = listener.fileno()
            application = Application(log, Failures(failures) if failures else None)
            return make_server(host, port, application, True, request_handler=_QuietHandler, fd=fd)
    except OSError as error:
        raise LocalAwsError(f"cannot listen on {host} port {port}: {error.strerror}") from error


def _prepare(region: str) -> None:
    # moto's own images take half a second and hundreds of snapshots, and nobody asks for them
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    for part in _PARTS:
        part.install()
    images.register(region)


class Application:
    """moto's application behind a lock, the judge, the log of requests, and the failures that somebody asked for."""

    def __init__(self, log: RequestLog | None, failures: Failures | None = None):
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._log = log
        self._failures = failures

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # read before the lock is taken, so that a slow sender stops nobody else
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        call = Call(environ, body)
        with LOCK if may_change(call.service, body) else LOCK.reading():
            judgement = judge_call(call)
            if self._log:
                self._log.write(call, judgement)
            answer = self._failure(call) or judgement.answer
            response: Iterable[bytes] = (answer or self._moto)(environ, start_response)
            return response

    def _failure(self, call: Call) -> Response | None:
        if self._failures is None:
            return None
        session = session_of(call.signed.access_key)
        instance_id = _instance_of(session.user_id) if session else None
        return self._failures.answer(call.environ, service=call.service, instance_id=instance_id)


def _instance_of(user_id: str) -> str | None:
    """The instance whose role's credentials are used: EC2 names their session after it."""
    name = user_id.partition(":")[2]
    return name if name.startswith("i-") else None


class _QuietHandler(WSGIRequestHandler):
    """Writes no line a request: a cluster's nodes ask every few seconds."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""
