"""Serve the control plane over HTTP: moto and its additions, in threads of which one at a time handles a request."""

import io
import os
import socket
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

from local.control_plane import buckets, cloud_control, efs, fsx, vpc_endpoints
from local.control_plane.api_faults import ApiFaults
from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization import session_tokens
from local.control_plane.authorization.authorizer import authorize
from local.control_plane.authorization.callers import find_session
from local.control_plane.autoscaling import (
    activities,
    group_checks,
    health,
    launch_instances_api,
    lifecycle_hooks,
    size_limits,
    template_launches,
    termination,
)
from local.control_plane.cloudformation import (
    change_sets,
    encryption,
    resource_types,
    signals,
    stack_events,
    stack_updates,
    stacks,
    template_rules,
)
from local.control_plane.ec2 import (
    availability_zones,
    capacity_blocks,
    capacity_reservations,
    elastic_ips,
    images,
    instance_types,
    placement_groups,
    prefix_lists,
    reboots,
    security_groups,
    subnets,
    volume_key,
)
from local.control_plane.ec2.run_instances import checks, network_interfaces, placement
from local.control_plane.iam_api import managed_policies, policy_simulator
from local.control_plane.limits import capacity, quotas, spot_scores
from local.control_plane.request_lock import LOCK
from local.control_plane.request_log import RequestLog
from local.control_plane.scheduler import schedules
from local.control_plane.ssm_sessions import channels, start_session
from local.control_plane.ssm_sessions.gateway import GATEWAY
from local.data_plane.changes import ChangeWriter, may_change

MOTO_VERSION = "5.2.5"
"""Version whose private names this package wraps."""

_WRAPPED_IN_ORDER: Final[Mapping[str, tuple[ModuleType, ...]]] = {
    "CloudFormationBackend.create_stack": (
        stacks,
        template_rules,  # outermost: refuses before anything is created
    ),
    "CloudFormationBackend.update_stack": (
        stack_updates,
        template_rules,  # outermost: refuses before anything is changed
    ),
    "CloudFormationBackend.create_change_set": (
        change_sets,
        template_rules,  # outermost: refuses before anything is created
    ),
    "FakeAutoScalingGroup.create_from_cloudformation_json": (lifecycle_hooks, group_checks),
    "FakeAutoScalingGroup._set_launch_configuration": (template_launches, group_checks),
    "FakeAutoScalingGroup.replace_autoscaling_group_instances": (
        template_launches,
        activities,  # outermost: records what template_launches does
    ),
    "Instance.terminate": (
        template_launches,
        elastic_ips,  # outermost: disassociates the address of what template_launches terminates
    ),
    "EC2Backend.run_instances": (
        capacity,  # counts running instances
        network_interfaces,  # completes the request
        placement,  # completes the request
        checks,  # refuses an invalid request
        capacity_reservations,  # outermost: assigns the reservation
    ),
}
"""Additions to moto that wrap the same function, outermost last: each calls those listed before it."""

_INDEPENDENT: Final[tuple[ModuleType, ...]] = (
    availability_zones,
    buckets,
    capacity_blocks,
    efs,
    encryption,
    fsx,
    health,
    images,
    instance_types,
    launch_instances_api,
    termination,
    managed_policies,
    placement_groups,
    policy_simulator,
    prefix_lists,
    quotas,
    reboots,
    resource_types,
    security_groups,
    session_tokens,
    signals,
    size_limits,
    spot_scores,
    stack_events,
    start_session,
    subnets,
    volume_key,
    vpc_endpoints,
)
"""Additions to moto that share no function with another."""

_EXTRA_SERVICES: Final = {channels.SERVICE: channels.answer, cloud_control.SERVICE: cloud_control.answer}
"""Services that moto lacks."""


class ServerStartError(Exception):
    """The server cannot start; the message explains why in one line."""


def create_server(
    *,
    host: str,
    port: int,
    region: str,
    request_log_file: Path | None = None,
    api_fault_file: Path | None = None,
    capacity_file: Path | None = None,
    quota_file: Path | None = None,
    change_file: Path | None = None,
    schedule_minute_s: float = 60.0,
) -> BaseWSGIServer:
    """Return a server that is already listening; the caller runs its ``serve_forever``."""
    if version("moto") != MOTO_VERSION:
        raise ServerStartError(f"unsupported moto version {version('moto')}, must be {MOTO_VERSION}")
    _prepare(region)
    capacity.use_limits_file(capacity_file)
    quotas.use_quotas_file(quota_file)
    schedules.set_minute_length(schedule_minute_s)
    try:
        log = RequestLog(request_log_file) if request_log_file else None
        if change_file:
            LOCK.changed = ChangeWriter(change_file).signal
    except OSError as error:
        raise ServerStartError(f"cannot write {error.filename}: {error.strerror}") from error
    try:
        GATEWAY.listen(host)
        # Bind here: werkzeug would exit the process if the port is taken.
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(128)
            fd = listener.fileno()
            schedules.serve_at(f"http://{'localhost' if host in ('', '0.0.0.0') else host}:{listener.getsockname()[1]}")  # noqa: S104  (compares)
            application = Application(log, ApiFaults(api_fault_file) if api_fault_file else None)
            return make_server(host, port, application, threaded=True, request_handler=_QuietHandler, fd=fd)
    except OSError as error:
        raise ServerStartError(f"cannot listen on {host} port {port}: {error.strerror}") from error


def _prepare(region: str) -> None:
    # moto's own images take half a second and hundreds of snapshots, and nothing uses them.
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    for extension in _moto_extensions():
        extension.install()
    images.register(region)


def _moto_extensions() -> list[ModuleType]:
    """Return all additions, each after those that it wraps."""
    sorter: TopologicalSorter[ModuleType] = TopologicalSorter()
    for extensions in _WRAPPED_IN_ORDER.values():
        for inner, outer in pairwise(extensions):
            sorter.add(outer, inner)
    return [*sorter.static_order(), *_INDEPENDENT]


class Application:
    """Put moto's application behind the VPC endpoints, lock, authorization, request log and injected faults."""

    def __init__(self, log: RequestLog | None, api_faults: ApiFaults | None = None):
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._log = log
        self._api_faults = api_faults

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # Read before acquiring the lock, so that a slow sender blocks nobody else.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        request = ApiRequest(environ, body)
        target = request.header("x-amz-target")
        with LOCK if may_change(request.service, body, method=request.method, target=target) else LOCK.without_signal():
            if vpc_endpoints.is_reachable(request):
                return self._serve(request, environ, start_response)
        vpc_endpoints.wait_for_hang_up(environ)
        raise ConnectionAbortedError("no route from the node to the service")  # werkzeug then answers nothing

    def _serve(self, request: ApiRequest, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        authorization = authorize(request)
        if self._log:
            self._log.write(request, authorization)
        response = self._injected_fault(request) or authorization.response
        if response is None and request.service in _EXTRA_SERVICES:
            response = _EXTRA_SERVICES[request.service](request)
        output: Iterable[bytes] = (response or self._moto)(environ, start_response)
        return output

    def _injected_fault(self, request: ApiRequest) -> Response | None:
        if self._api_faults is None:
            return None
        session = find_session(request.credential.access_key)
        instance_id = _instance_id(session.user_id) if session else None
        return self._api_faults.response(request, instance_id=instance_id)


def _instance_id(user_id: str) -> str | None:
    """Return the instance that uses its role's credentials; EC2 names the session after it."""
    name = user_id.partition(":")[2]
    return name if name.startswith("i-") else None


class _QuietHandler(WSGIRequestHandler):
    """Writes no line per request, because a cluster's nodes make calls every few seconds."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""
