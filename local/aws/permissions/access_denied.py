"""Word a refusal like each service.

AWS: "Common errors" of each service's API reference, and "Troubleshoot access denied error messages" in the IAM User
Guide.
"""

from typing import Final

from werkzeug.wrappers import Response

from local.aws.api_faults import ServiceError, response
from local.aws.calls import Call
from local.aws.permissions.callers import Caller
from local.iam.policies import Decision, Permission

_JSON: Final = frozenset({"dynamodb", "fsx", "logs", "secretsmanager", "ssm"})
_INVALID_CREDENTIALS: Final = {
    "dynamodb": ServiceError(
        status=400,
        code="UnrecognizedClientException",
        message="The security token included in the request is invalid.",
    ),
    "ec2": ServiceError(
        status=401,
        code="AuthFailure",
        message="AWS was not able to validate the provided access credentials",
    ),
    "s3": ServiceError(
        status=403,
        code="InvalidAccessKeyId",
        message="The AWS Access Key Id you provided does not exist in our records.",
    ),
}
_INVALID_CREDENTIALS_ELSEWHERE: Final = ServiceError(
    status=403, code="InvalidClientTokenId", message="The security token included in the request is invalid."
)


def denial_message(caller: Caller, permission: Permission, decision: Decision, *, quoted: bool = False) -> str:
    """Word a denial like AWS; S3 quotes the resource, and an action without a kind of resource names none."""
    resource = f'"{permission.resource}"' if quoted else permission.resource
    on = "" if permission.resource == "*" else f" on resource: {resource}"
    why = decision.value.format(action=permission.action)
    return f"User: {caller.arn_of_session} is not authorized to perform: {permission.action}{on} {why}"


def denied_response(call: Call, caller: Caller, permission: Permission, decision: Decision) -> Response:
    """Return the answer to a call that the policies do not allow."""
    message = denial_message(caller, permission, decision, quoted=call.service == "s3")
    if call.service == "ec2":
        # Leave out the encoded message that follows in EC2, because nobody could decode it here.
        found = ServiceError(
            status=403,
            code="UnauthorizedOperation",
            message=f"You are not authorized to perform this operation. {message}",
        )
    elif call.service in _JSON:
        found = ServiceError(status=400, code="AccessDeniedException", message=message)
    else:
        found = ServiceError(status=403, code="AccessDenied", message=message)
    return _response(found, call)


def invalid_credentials_response(call: Call) -> Response:
    """Return the answer to a call that is unsigned or signed with an unknown key."""
    known = (
        _INVALID_CREDENTIALS["dynamodb"]
        if call.service in _JSON
        else _INVALID_CREDENTIALS.get(call.service, _INVALID_CREDENTIALS_ELSEWHERE)
    )
    return _response(known, call)


def _response(refused: ServiceError, call: Call) -> Response:
    made = response(refused, call.service, call.environ)
    if call.method == "HEAD":
        made.set_data(b"")
    return made
