"""List what reading parameters and secrets requires: the action on each, and its KMS key unless that is AWS's own.

AWS: "AWS KMS encryption for AWS Systems Manager Parameter Store SecureString parameters" (Systems Manager User Guide);
"Secret encryption and decryption in AWS Secrets Manager" (Secrets Manager User Guide).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from moto.secretsmanager.models import secretsmanager_backends
from moto.ssm.models import ssm_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import Caller
from local.control_plane.authorization.keys import through_service
from local.policy_evaluation.policies import Permission


def _parameter(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    name = str(request.parameters.get("Name", ""))
    yield caller.permission(request, caller.arn(request, f"parameter/{name.lstrip('/')}"))
    stored = ssm_backends[caller.account][request.credential.region].get_parameter(name)
    if stored is not None and stored.parameter_type == "SecureString" and request.parameters.get("WithDecryption"):
        yield from through_service(request, caller, stored.keyid or "", "Decrypt")


def _secret(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the secret's ARN; for one that does not exist, on the name in the request."""
    name = str(request.parameters["SecretId"])
    stored = secretsmanager_backends[caller.account][request.credential.region].secrets.get(name)
    yield caller.permission(request, stored.arn if stored else name)
    if stored:
        yield from through_service(request, caller, getattr(stored, "kms_key_id", None) or "", "Decrypt")


CALLS: Final[Mapping[str, Callable[[ApiRequest, Caller], Iterator[Permission]]]] = {
    "secretsmanager:GetSecretValue": _secret,
    "ssm:GetParameter": _parameter,
}
