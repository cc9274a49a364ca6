"""Answers of a control plane that is too busy or broken, given in place of moto's to a share of the nodes' requests.

The rules are a file of JSON that others write while the server runs (``local.faults.api``). Only nodes are refused: who
calls with other credentials, a test that observes say, is always served.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal
from xml.sax.saxutils import escape

from werkzeug.wrappers import Response

Kind = Literal["throttle", "error"]
SERVICES: Final = ("autoscaling", "cloudformation", "dynamodb", "ec2", "iam", "logs", "s3", "ssm", "sts")
"""All that the local AWS has, as in a signature's scope."""
FILE: Final = "api-faults.json"
"""Its name in the run's directory."""
REQUEST_ID: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiFault:
    """Which requests of nodes are refused, and how."""

    kind: Kind
    service: str | None = None
    """As in a signature's scope ("dynamodb"); left out, every service."""
    instance_id: str | None = None
    """Left out, every node."""
    share: float = 1.0
    """Of the requests that fit; which of them the seed decides."""
    seed: int = 0

    def fits(self, service: str, instance_id: str) -> bool:
        return self.service in (None, service) and self.instance_id in (None, instance_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """An error as a service words it."""

    status: int
    code: str
    message: str


# "Common Errors" or "Error handling" of each service's API reference.
_THROTTLED: Final[Mapping[str, Refusal]] = {
    "ec2": Refusal(status=503, code="RequestLimitExceeded", message="Request limit exceeded."),
    "s3": Refusal(status=503, code="SlowDown", message="Please reduce your request rate."),
    "dynamodb": Refusal(
        status=400,
        code="ProvisionedThroughputExceededException",
        message="The level of configured provisioned throughput for the table was exceeded.",
    ),
}
_BROKEN: Final[Mapping[str, Refusal]] = {
    "ec2": Refusal(status=500, code="InternalError", message="An internal error has occurred"),
    "s3": Refusal(status=500, code="InternalError", message="We encountered an internal error. Please try again."),
    "dynamodb": Refusal(status=500, code="InternalServerError", message="Internal server error"),
    "logs": Refusal(status=500, code="ServiceUnavailableException", message="The service cannot complete the request."),
}


def refusal(kind: Kind, service: str, *, query: bool) -> Refusal:
    """What a service answers; ``query`` tells the older protocol, whose codes have no suffix."""
    if kind == "throttle":
        code = "Throttling" if query else "ThrottlingException"
        return _THROTTLED.get(service, Refusal(status=400, code=code, message="Rate exceeded"))
    return _BROKEN.get(service, Refusal(status=500, code="InternalFailure", message="Internal failure"))


def response(refused: Refusal, service: str, environ: Mapping[str, Any]) -> Response:
    """The answer in the protocol that was asked in."""
    if target := environ.get("HTTP_X_AMZ_TARGET", ""):
        namespace = "com.amazonaws.dynamodb.v20120810#" if target.startswith("DynamoDB_20120810") else ""
        text, mimetype = json.dumps({"__type": namespace + refused.code, "message": refused.message}), _json_of(environ)
    else:
        text, mimetype = _xml(refused, service), "text/xml"
    headers = {"x-amzn-RequestId": REQUEST_ID, "x-amzn-ErrorType": refused.code}
    return Response(text, status=refused.status, headers=headers, content_type=mimetype)


def _json_of(environ: Mapping[str, Any]) -> str:
    return str(environ.get("CONTENT_TYPE") or "application/x-amz-json-1.1")


def _xml(refused: Refusal, service: str) -> str:
    error = f"<Code>{escape(refused.code)}</Code><Message>{escape(refused.message)}</Message>"
    if service == "s3":
        return f"<Error>{error}<RequestId>{REQUEST_ID}</RequestId></Error>"
    if service == "ec2":
        return f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{REQUEST_ID}</RequestID></Response>"
    fault = "Sender" if refused.status < 500 else "Receiver"
    return (
        f"<ErrorResponse><Error><Type>{fault}</Type>{error}</Error><RequestId>{REQUEST_ID}</RequestId></ErrorResponse>"
    )


def read_faults(path: Path) -> tuple[ApiFault, ...]:
    """The rules in force; none when there is no file."""
    try:
        return tuple(ApiFault(**rule) for rule in json.loads(path.read_text()))
    except FileNotFoundError:
        return ()


def write_faults(path: Path, faults: Iterable[ApiFault]) -> None:
    """Put rules in force, all at once."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps([asdict(fault) for fault in faults]))
    partial.rename(path)


class Failures:
    """The rules as they are now, and the dice of each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None
        self._dice: dict[ApiFault, random.Random] = {}

    def answer(self, environ: Mapping[str, Any], *, service: str, instance_id: str | None) -> Response | None:
        """The answer to a node's request that is to fail, None for one that is to be served."""
        self._refresh()
        if instance_id is None:
            return None
        for fault, dice in self._dice.items():
            if fault.fits(service, instance_id) and dice.random() < fault.share:
                query = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
                return response(refusal(fault.kind, service, query=query), service, environ)
        return None

    def _refresh(self) -> None:
        """Read the file again when it is another; a rule that stays goes on with its dice."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._read, self._dice = None, {}
            return
        if self._read != (found.st_ino, found.st_mtime_ns):
            kept = self._dice
            # Not for secrets: a run must be repeatable.
            self._dice = {f: kept.get(f) or random.Random(f.seed) for f in read_faults(self._path)}  # noqa: S311  (see above)
            self._read = (found.st_ino, found.st_mtime_ns)
