"""How a service words a refusal.

"Common errors" of each service's API reference; the sentence: "Troubleshoot access denied error messages" in the IAM
User Guide.
"""

from typing import Final

from werkzeug.wrappers import Response

from local.aws.calls import Call
from local.aws.failures import Refusal, response
from local.aws.permissions.callers import Caller
from local.aws.permissions.policies import Need, Verdict

_JSON: Final = frozenset({"dynamodb", "logs", "ssm"})
_STRANGERS: Final = {
    "dynamodb": Refusal(
        status=400,
        code="UnrecognizedClientException",
        message="The security token included in the request is invalid.",
    ),
    "ec2": Refusal(
        status=401,
        code="AuthFailure",
        message="AWS was not able to validate the provided access credentials",
    ),
    "s3": Refusal(
        status=403,
        code="InvalidAccessKeyId",
        message="The AWS Access Key Id you provided does not exist in our records.",
    ),
}
_STRANGER: Final = Refusal(
    status=403, code="InvalidClientTokenId", message="The security token included in the request is invalid."
)


def sentence(caller: Caller, need: Need, verdict: Verdict, *, quoted: bool = False) -> str:
    """Say who may not do what, and why; an action without a kind of resource names none, S3 quotes it."""
    resource = f'"{need.resource}"' if quoted else need.resource
    on = "" if need.resource == "*" else f" on resource: {resource}"
    why = verdict.value.format(action=need.action)
    return f"User: {caller.arn_of_session} is not authorized to perform: {need.action}{on} {why}"


def denied(call: Call, caller: Caller, need: Need, verdict: Verdict) -> Response:
    """The answer to a call that the policies do not allow."""
    message = sentence(caller, need, verdict, quoted=call.service == "s3")
    if call.service == "ec2":
        # The encoded message that follows there is left out: nobody could decode it here.
        found = Refusal(
            status=403,
            code="UnauthorizedOperation",
            message=f"You are not authorized to perform this operation. {message}",
        )
    elif call.service in _JSON:
        found = Refusal(status=400, code="AccessDeniedException", message=message)
    else:
        found = Refusal(status=403, code="AccessDenied", message=message)
    return _response(found, call)


def stranger(call: Call) -> Response:
    """The answer to a call that is signed with no key of the account, or by nobody."""
    known = _STRANGERS["dynamodb"] if call.service in _JSON else _STRANGERS.get(call.service, _STRANGER)
    return _response(known, call)


def _response(refused: Refusal, call: Call) -> Response:
    made = response(refused, call.service, call.environ)
    if call.method == "HEAD":
        made.set_data(b"")
    return made
