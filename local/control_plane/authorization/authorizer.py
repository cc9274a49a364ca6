"""Refuse calls that the caller's policies do not allow, for every role and user, like AWS.

Unknown and expired access keys are rejected before policies are evaluated. Two kinds of caller may do anything: the
user of the local AWS, who is the account's administrator, and the roles of `cdk bootstrap`. A role's call whose
permissions are not described here is refused and logged, so that no node makes such a call unnoticed. A user needs such
a call's action on every resource.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from werkzeug.wrappers import Response

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization import access_denied, session_tokens
from local.control_plane.authorization.callers import (
    Caller,
    UnknownActionError,
    find_caller,
    find_session,
    has_expired,
    is_administrator,
)
from local.control_plane.authorization.required import required_permissions
from local.control_plane.buckets import bucket_policy
from local.policy_evaluation.conditions import PolicyError
from local.policy_evaluation.policies import Decision, Permission, evaluate

log = logging.getLogger(__name__)
_NEED_LONG_TERM_CREDENTIALS: Final = frozenset({"GetFederationToken", "GetSessionToken"})
"""Calls of STS that no temporary credentials may make, a role's or a user's."""
_ALLOWED_WITH_SESSION_TOKEN: Final = frozenset({"AssumeRole", "GetCallerIdentity"})
"""The only calls of STS that the credentials of GetSessionToken may make."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Authorization:
    """Result of authorizing one call."""

    caller: Caller | None = None
    """The caller; None if the call is an administrator's or its key is unknown."""
    required: tuple[Permission, ...] = ()
    refused: Permission | None = None
    """First permission that the caller lacks."""
    response: Response | None = field(default=None, compare=False)
    """Error for a refused call."""


def authorize(request: ApiRequest) -> Authorization:
    """Authorize a call by the current policies and state."""
    access_key = request.credential.access_key
    if has_expired(access_key):
        return Authorization(response=access_denied.expired_credentials_response(request))
    if refusal := _refuse_session(request):
        return Authorization(response=refusal)
    caller = find_caller(access_key)
    if caller is None:
        return (
            Authorization()
            if request.is_from_user and is_administrator(access_key)
            else _authorize_unknown_key(request)
        )
    try:
        required = _required_permissions(request, caller)
        refused = _first_refused(required, caller)
    except (PolicyError, UnknownActionError) as error:
        log.warning("refused to %s: %s", caller.session_arn, error)
        required, refused = (), (caller.permission(request), Decision.NOT_ALLOWED)
    if refused is None:
        return Authorization(caller=caller, required=required)
    permission, decision = refused
    response = access_denied.denied_response(request, caller, permission, decision)
    return Authorization(caller=caller, required=required, refused=permission, response=response)


def _refuse_session(request: ApiRequest) -> Response | None:
    """Refuse the calls that temporary credentials may not make, whatever the policies allow."""
    access_key = request.credential.access_key
    is_session_token = session_tokens.issued_token(access_key) is not None
    if request.service == "iam" and is_session_token:
        return access_denied.invalid_credentials_response(request)
    if request.service != "sts" or not (is_session_token or find_session(access_key)):
        return None
    if request.action in _NEED_LONG_TERM_CREDENTIALS or (
        is_session_token and request.action not in _ALLOWED_WITH_SESSION_TOKEN
    ):
        return access_denied.session_refused_response(request)
    return None


def _authorize_unknown_key(request: ApiRequest) -> Authorization:
    """Refuse a call whose key is unknown, or a node's whose key is missing or an administrator's."""
    log.warning("refused to %s: no key of the account signs %s", request.environ.get("REMOTE_ADDR"), request.action)
    return Authorization(response=access_denied.invalid_credentials_response(request))


def _required_permissions(request: ApiRequest, caller: Caller) -> tuple[Permission, ...]:
    try:
        return required_permissions(request, caller)
    except UnknownActionError:
        if caller.is_role:
            raise
        return (caller.permission(request),)


def _first_refused(required: Sequence[Permission], caller: Caller) -> tuple[Permission, Decision] | None:
    for permission in required:
        decision = evaluate(permission, caller.statements, bucket_policy(permission.resource))
        if decision is not Decision.ALLOWED:
            return permission, decision
    return None
