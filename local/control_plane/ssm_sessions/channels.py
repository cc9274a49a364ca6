"""Answer the calls to open channels (service ``ssmmessages``), which AWS's own agent and plugin make and moto lacks.

Each answer contains a ticket for a connection to the gateway. AWS upgrades the second call of each channel to a
WebSocket.
"""

import json
import re
from typing import Final

from werkzeug.wrappers import Response

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import find_session
from local.control_plane.ssm_sessions.gateway import GATEWAY

SERVICE: Final = "ssmmessages"
PATH: Final = re.compile(r"/v1/(control|data)-channel/([\w:.-]+)")


def answer(request: ApiRequest) -> Response:
    """Answer an authorized call."""
    path_match = PATH.fullmatch(request.path)
    if path_match is None:
        return _refused(f"no such channel: {request.path}")
    kind, subject = path_match.groups()
    if request.method == "POST":  # create; the open that follows returns the ticket
        return _json({"MessageSchemaVersion": "1.0"})
    caller = find_session(request.credential.access_key)
    instance_id = caller.user_id.partition(":")[2] if caller else ""
    if kind == "control":
        if instance_id != subject:
            return _refused(f"the channel of {subject} is not {instance_id or 'the caller'}'s")
        return _json({"Port": GATEWAY.port, "Ticket": GATEWAY.ticket("control", subject)})
    session = GATEWAY.sessions.get(subject)
    if session is None:
        return _refused(f"there is no session {subject}")
    if instance_id == session.instance_id:
        return _json({"Port": GATEWAY.port, "Ticket": GATEWAY.ticket("agent", subject)})
    if request.header("x-session-token") != session.token:
        return _refused(f"this is not the token of session {subject}")
    return _json({"Port": GATEWAY.port, "Ticket": GATEWAY.ticket("client", subject)})


def _json(body: dict[str, object]) -> Response:
    return Response(json.dumps(body), content_type="application/json")


def _refused(message: str) -> Response:
    return Response(json.dumps({"message": message}), status=403, content_type="application/json")
