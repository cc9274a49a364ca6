"""Word a refusal like each service.

AWS: "Common errors" of each service's API reference, and "Troubleshoot access denied error messages" in the IAM User
Guide.
"""

from collections.abc import Mapping
from typing import Final

from werkzeug.wrappers import Response

from local.control_plane.api_faults import ServiceError, response
from local.control_plane.api_request import ApiRequest, Protocol
from local.control_plane.authorization.callers import Caller
from local.policy_evaluation.policies import Decision, Permission

_INVALID: Final = "The security token included in the request is invalid."
_INVALID_CREDENTIALS: Final[Mapping[Protocol, ServiceError]] = {
    "ec2": ServiceError(
        status=401, code="AuthFailure", message="AWS was not able to validate the provided access credentials"
    ),
    "s3": ServiceError(
        status=403,
        code="InvalidAccessKeyId",
        message="The AWS Access Key Id you provided does not exist in our records.",
    ),
    "query": ServiceError(status=403, code="InvalidClientTokenId", message=_INVALID),
    "json": ServiceError(status=400, code="UnrecognizedClientException", message=_INVALID),
    "rest-json": ServiceError(status=403, code="UnrecognizedClientException", message=_INVALID),
}
_EXPIRED: Final = "The security token included in the request is expired"
# As users saw them: hellofresh/eks-rolling-update issue 103 (EC2), romange/helio issue 15 (S3), cfn-sphere issue 55
# (query) and Dynobase issue 122 (JSON). REST-JSON: "Common Errors", Application Migration Service API reference.
_EXPIRED_CREDENTIALS: Final[Mapping[Protocol, ServiceError]] = {
    "ec2": ServiceError(status=400, code="RequestExpired", message="Request has expired."),
    "s3": ServiceError(status=400, code="ExpiredToken", message="The provided token has expired."),
    "query": ServiceError(status=403, code="ExpiredToken", message=_EXPIRED),
    "json": ServiceError(status=400, code="ExpiredTokenException", message=_EXPIRED),
    "rest-json": ServiceError(status=403, code="ExpiredTokenException", message=_EXPIRED),
}


def denial_message(caller: Caller, permission: Permission, decision: Decision, *, quoted: bool = False) -> str:
    """Word a denial like AWS.

    S3 quotes the resource; the message for an action that has no kind of resource names none.
    """
    resource = f'"{permission.resource}"' if quoted else permission.resource
    on = "" if permission.resource == "*" else f" on resource: {resource}"
    why = decision.value.format(action=permission.action)
    return f"User: {caller.session_arn} is not authorized to perform: {permission.action}{on} {why}"


def denied_response(request: ApiRequest, caller: Caller, permission: Permission, decision: Decision) -> Response:
    """Return the response to a call that the policies do not allow."""
    message = denial_message(caller, permission, decision, quoted=request.service == "s3")
    if request.service == "ec2":
        # Leave out the encoded message that follows in EC2, because nobody could decode it here.
        error = ServiceError(
            status=403,
            code="UnauthorizedOperation",
            message=f"You are not authorized to perform this operation. {message}",
        )
    elif request.protocol == "json":
        error = ServiceError(status=400, code="AccessDeniedException", message=message)
    else:
        error = ServiceError(status=403, code="AccessDenied", message=message)
    return _response(error, request)


def invalid_credentials_response(request: ApiRequest) -> Response:
    """Return the response to a call that is unsigned or signed with an unknown key."""
    return _response(_INVALID_CREDENTIALS[request.protocol], request)


def expired_credentials_response(request: ApiRequest) -> Response:
    """Return the response to a call that is signed with temporary credentials whose time is over."""
    return _response(_EXPIRED_CREDENTIALS[request.protocol], request)


def session_refused_response(request: ApiRequest) -> Response:
    """Return the response to a call of STS that temporary credentials may not make."""
    message = f"Cannot call {request.action} with session credentials"
    return _response(ServiceError(status=403, code="AccessDenied", message=message), request)


def _response(error: ServiceError, request: ApiRequest) -> Response:
    denial = response(error, request)
    if request.method == "HEAD":
        denial.set_data(b"")
    return denial
