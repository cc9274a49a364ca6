"""Require the KMS key with which a service encrypts what a call reads or writes, unless that key is AWS's own.

The service uses the key on behalf of the caller, who also needs the permission ("kms:ViaService", AWS KMS Developer
Guide).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from moto.kms.models import kms_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import Caller
from local.policy_evaluation.policies import Permission

_AWS_ALIASES: Final = "alias/aws/"
"""Start of the names of AWS's own keys, which every caller of the account may use through their services."""


def through_service(request: ApiRequest, caller: Caller, key: str, action: str) -> Iterator[Permission]:
    """Require an action on the key through the call's service; ``key`` is an ARN, an ID, an alias or empty."""
    if not key or _AWS_ALIASES in key:
        return
    region = request.credential.region
    if key.startswith("alias/"):
        key = kms_backends[caller.account][region].get_key_id_from_alias(key) or key
    arn = key if key.startswith("arn:") else f"arn:{caller.partition}:kms:{region}:{caller.account}:key/{key}"
    through = {"kms:ViaService": (f"{request.service}.{region}.amazonaws.com",)}
    yield replace(caller.permission(request, arn, context=through), action=f"kms:{action}")
