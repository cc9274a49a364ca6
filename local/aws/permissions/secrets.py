"""List what reading parameters and secrets requires: the action on each, and its KMS key unless that is AWS's own.

AWS: "AWS KMS encryption for AWS Systems Manager Parameter Store SecureString parameters" (Systems Manager User Guide);
"Secret encryption and decryption in AWS Secrets Manager" (Secrets Manager User Guide).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from moto.kms.models import kms_backends
from moto.secretsmanager.models import secretsmanager_backends
from moto.ssm.models import ssm_backends

from local.aws.calls import Call
from local.aws.permissions.callers import Caller
from local.aws.permissions.policies import Permission

_OF_AWS: Final = ("alias/aws/ssm", "alias/aws/secretsmanager")
"""AWS's own keys, whose policies let every caller of the account use them through their services."""


def _parameter(call: Call, caller: Caller) -> Iterator[Permission]:
    name = str(call.parameters.get("Name", ""))
    yield caller.permission(call, caller.arn(call, f"parameter/{name.lstrip('/')}"))
    found = ssm_backends[caller.account][call.credential.region].get_parameter(name)
    if found is not None and found.parameter_type == "SecureString" and call.parameters.get("WithDecryption"):
        yield from _decryption(call, caller, found.keyid or "")


def _secret(call: Call, caller: Caller) -> Iterator[Permission]:
    """Require the action on the secret's ARN; for one that does not exist, on the name in the request."""
    name = str(call.parameters["SecretId"])
    found = secretsmanager_backends[caller.account][call.credential.region].secrets.get(name)
    yield caller.permission(call, found.arn if found else name)
    if found:
        yield from _decryption(call, caller, getattr(found, "kms_key_id", None) or "")


def _decryption(call: Call, caller: Caller, key: str) -> Iterator[Permission]:
    """Require the key, through the service, unless it is AWS's own."""
    if not key or key.endswith(_OF_AWS):
        return
    region = call.credential.region
    if key.startswith("alias/"):
        key = kms_backends[caller.account][region].get_key_id_from_alias(key) or key
    arn = key if key.startswith("arn:") else f"arn:{caller.partition}:kms:{region}:{caller.account}:key/{key}"
    through = {"kms:ViaService": (f"{call.service}.{region}.amazonaws.com",)}
    yield replace(caller.permission(call, arn, context=through), action="kms:Decrypt")


CALLS: Final[Mapping[str, Callable[[Call, Caller], Iterator[Permission]]]] = {
    "secretsmanager:GetSecretValue": _secret,
    "ssm:GetParameter": _parameter,
}
