"""Inject faults into a fraction of the nodes' requests: the errors of an overloaded or broken control plane.

The injected faults are in a JSON file that others write while the server runs (``local.faults.api``). Only nodes are
affected; other callers, such as a test that observes, are always served.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import escape

from werkzeug.wrappers import Response

from local.control_plane.api_request import ApiRequest, Protocol

ApiFaultKind = Literal["throttle", "error"]
SERVICES: Final = (
    *("autoscaling", "cloudformation", "dynamodb", "ec2", "fsx", "iam", "logs"),
    *("s3", "secretsmanager", "ssm", "ssmmessages", "sts"),
)
"""All services of the local AWS that nodes may call, named as in a signature."""
FILE: Final = "api-faults.json"
"""Name of the file of injected faults, in the run's directory."""
REQUEST_ID: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiFault:
    """An injected fault: which requests of nodes fail, and how."""

    kind: ApiFaultKind
    service: str | None = None
    """Service as named in a signature ("dynamodb"); None for every service."""
    instance_id: str | None = None
    """Instance whose requests fail; None for every node."""
    fraction: float = 1.0
    """Fraction of the matching requests that fail; the seed decides which ones."""
    seed: int = 0

    def matches(self, service: str, instance_id: str) -> bool:
        return self.service in (None, service) and self.instance_id in (None, instance_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceError:
    """An error in a service's own words."""

    status: int
    code: str
    message: str


# "Common Errors" or "Error handling" of each service's API reference.
_THROTTLING_ERRORS: Final[Mapping[str, ServiceError]] = {
    "ec2": ServiceError(status=503, code="RequestLimitExceeded", message="Request limit exceeded."),
    "s3": ServiceError(status=503, code="SlowDown", message="Please reduce your request rate."),
    "dynamodb": ServiceError(
        status=400,
        code="ProvisionedThroughputExceededException",
        message="The level of configured provisioned throughput for the table was exceeded.",
    ),
}
_INTERNAL_ERRORS: Final[Mapping[str, ServiceError]] = {
    "ec2": ServiceError(status=500, code="InternalError", message="An internal error has occurred"),
    "s3": ServiceError(status=500, code="InternalError", message="We encountered an internal error. Please try again."),
    "dynamodb": ServiceError(status=500, code="InternalServerError", message="Internal server error"),
    "fsx": ServiceError(status=500, code="InternalServerError", message="A generic error on the server's side."),
    "secretsmanager": ServiceError(
        status=500, code="InternalServiceError", message="An error occurred on the server side."
    ),
    "logs": ServiceError(
        status=500, code="ServiceUnavailableException", message="The service cannot complete the request."
    ),
}


def service_error(kind: ApiFaultKind, service: str, *, query: bool) -> ServiceError:
    """Return the error that a fault injects; ``query`` means the query protocol, whose codes have no suffix."""
    if kind == "throttle":
        code = "Throttling" if query else "ThrottlingException"
        return _THROTTLING_ERRORS.get(service, ServiceError(status=400, code=code, message="Rate exceeded"))
    return _INTERNAL_ERRORS.get(service, ServiceError(status=500, code="InternalFailure", message="Internal failure"))


def response(error: ServiceError, request: ApiRequest) -> Response:
    """Build the response in the protocol of the request."""
    if request.protocol == "json":
        namespace = "com.amazonaws.dynamodb.v20120810#" if request.service == "dynamodb" else ""
        text = json.dumps({"__type": namespace + error.code, "message": error.message})
        mimetype = str(request.environ.get("CONTENT_TYPE") or "application/x-amz-json-1.1")
    elif request.protocol == "rest-json":
        text, mimetype = json.dumps({"message": error.message}), "application/json"
    else:
        text, mimetype = _xml(error, request.protocol), "text/xml"
    headers = {"x-amzn-RequestId": REQUEST_ID, "x-amzn-ErrorType": error.code}
    return Response(text, status=error.status, headers=headers, content_type=mimetype)


def _xml(error: ServiceError, protocol: Protocol) -> str:
    details = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    if protocol == "s3":
        return f"<Error>{details}<RequestId>{REQUEST_ID}</RequestId></Error>"
    if protocol == "ec2":
        return f"<Response><Errors><Error>{details}</Error></Errors><RequestID>{REQUEST_ID}</RequestID></Response>"
    fault = "Sender" if error.status < 500 else "Receiver"
    typed = f"<Error><Type>{fault}</Type>{details}</Error>"
    return f"<ErrorResponse>{typed}<RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"


def read_faults(path: Path) -> tuple[ApiFault, ...]:
    """Return the current injected faults; none without a file."""
    try:
        return tuple(ApiFault(**fault) for fault in json.loads(path.read_text()))
    except FileNotFoundError:
        return ()


def write_faults(path: Path, faults: Iterable[ApiFault]) -> None:
    """Replace all injected faults atomically."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps([asdict(fault) for fault in faults]))
    partial.rename(path)


class ApiFaults:
    """Makes nodes' requests fail by the current injected faults, each of which has a random generator."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_version: tuple[int, int] | None = None
        self._generators: dict[ApiFault, random.Random] = {}

    def response(self, request: ApiRequest, *, instance_id: str | None) -> Response | None:
        """Return an error for a node's request, or None to serve it."""
        self._refresh()
        if instance_id is None:
            return None
        for fault, generator in self._generators.items():
            if fault.matches(request.service, instance_id) and generator.random() < fault.fraction:
                return response(service_error(fault.kind, request.service, query=request.is_query), request)
        return None

    def _refresh(self) -> None:
        """Reread the file if it has changed; unchanged faults keep their random generators."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._file_version, self._generators = None, {}
            return
        version = (status.st_ino, status.st_mtime_ns)
        if self._file_version != version:
            old = self._generators
            # Not for secrets: a run must be reproducible.
            self._generators = {f: old.get(f) or random.Random(f.seed) for f in read_faults(self._path)}  # noqa: S311  (see above)
            self._file_version = version
