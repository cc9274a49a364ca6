"""Serve the calls of Systems Manager about sessions, which moto lacks: start and end one, report an instance."""

import json
import secrets
from typing import Any, Final

from moto.core.exceptions import ServiceException
from moto.ssm.responses import SimpleSystemManagerResponse

from local.control_plane.api_request import parse_credential
from local.control_plane.authorization.callers import find_session, find_user
from local.control_plane.moto_patching import add
from local.control_plane.ssm_sessions.gateway import GATEWAY, Session

SSH_DOCUMENT: Final = "AWS-StartSSHSession"


class _SessionError(ServiceException):
    """Systems Manager's error for a refused session."""


def install() -> None:
    """Patch moto: add the calls."""
    add(SimpleSystemManagerResponse, "start_session", _start)
    add(SimpleSystemManagerResponse, "terminate_session", _terminate)
    add(SimpleSystemManagerResponse, "update_instance_information", _update_instance_information)


def _start(response: Any) -> str:
    instance_id, document = response._get_param("Target"), response._get_param("DocumentName")
    if document != SSH_DOCUMENT:
        raise _SessionError("InvalidDocument", f"the local AWS carries {SSH_DOCUMENT} only, got {document}")
    if not GATEWAY.is_connected(instance_id):
        raise _SessionError("TargetNotConnected", f"{instance_id} is not connected.")
    port = int((response._get_param("Parameters") or {}).get("portNumber", ["22"])[0])
    session_id = f"{_caller_id(response)}-{secrets.token_hex(8)}"
    session = Session(session_id=session_id, instance_id=instance_id, port=port)
    GATEWAY.sessions[session_id] = session
    url = f"ws://{response.headers['Host']}/v1/data-channel/{session_id}?role=publish_subscribe"
    return json.dumps({"SessionId": session_id, "TokenValue": session.token, "StreamUrl": url})


def _caller_id(response: Any) -> str:
    """Return the caller's ``aws:userid``; a session's ID starts with it, so that policies can identify the owner."""
    key = parse_credential({"HTTP_AUTHORIZATION": response.headers.get("Authorization", "")}).access_key
    if session := find_session(key):
        return str(session.user_id)
    if backend_and_user := find_user(key):
        return str(backend_and_user[1].id)
    return "administrator"


def _terminate(response: Any) -> str:
    session_id = response._get_param("SessionId")
    GATEWAY.sessions.pop(session_id, None)
    return json.dumps({"SessionId": session_id})


def _update_instance_information(_response: Any) -> str:
    return "{}"
