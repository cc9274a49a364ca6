"""Issue the temporary credentials of GetSessionToken, for which moto answers with those of an example.

They may do what the key may do that asked for them, until they expire, but neither call IAM nor issue other temporary
credentials than a role's ("GetSessionToken", AWS STS API Reference; no session here has authenticated with MFA).
Unlike AWS, the local STS grants less than 900 seconds as well, so that expired credentials need no quarter of an hour.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.iam.utils import generate_access_key_id_from_account_id, random_alphanumeric
from moto.sts.models import STSBackend
from moto.sts.responses import TokenResponse
from moto.sts.utils import random_session_token

from local.aws.api_request import parse_credential
from local.aws.moto_patching import wrap


@dataclass(frozen=True, kw_only=True, slots=True)
class IssuedToken:
    """Temporary credentials of a user."""

    owner: str
    """Access key that asked for them."""
    expiration: datetime


_ISSUED: Final[dict[str, IssuedToken]] = {}
"""Credentials by access key."""


def install() -> None:
    """Patch moto: GetSessionToken issues a key of its own for each call."""
    wrap(TokenResponse, "get_session_token", _get_session_token)
    wrap(STSBackend, "get_caller_identity", _get_caller_identity)


def issued_token(access_key: str) -> IssuedToken | None:
    """Return the credentials of GetSessionToken that have an access key."""
    return _ISSUED.get(access_key)


def owner_of(access_key: str) -> str:
    """Return the key for which a temporary one was issued; another key is its own owner."""
    issued = _ISSUED.get(access_key)
    return issued.owner if issued else access_key


def _get_session_token(original: Callable[..., ActionResult], response: TokenResponse) -> ActionResult:
    made = original(response)
    result: Any = made.result
    credentials, account = result["Credentials"], response.current_account
    access_key = generate_access_key_id_from_account_id(account, prefix="ASIA", total_length=20)
    credentials["AccessKeyId"], credentials["SecretAccessKey"] = access_key, random_alphanumeric(40)
    credentials["SessionToken"] = random_session_token()
    owner = parse_credential(response.normalized_request.environ).access_key
    _ISSUED[access_key] = IssuedToken(owner=owner, expiration=credentials["Expiration"])
    return made


def _get_caller_identity(
    original: Callable[..., tuple[str, str, str]], backend: STSBackend, access_key_id: str, region: str
) -> tuple[str, str, str]:
    return original(backend, owner_of(access_key_id), region)
