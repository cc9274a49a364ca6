"""Issue the temporary credentials of GetSessionToken, for which moto answers with those of an example.

Until they expire, they have the permissions of the key that asked for them, except that they cannot call IAM, and of
STS only AssumeRole and GetCallerIdentity ("GetSessionToken", AWS STS API Reference; no session here has authenticated
with MFA). Unlike AWS, the local STS also grants less than 900 seconds, so that a test need not wait a quarter of an
hour for credentials to expire.
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

from local.control_plane.api_request import parse_credential
from local.control_plane.moto_patching import wrap


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


def long_term_key(access_key: str) -> str:
    """Return the key that called GetSessionToken for this one; a key that was not issued so is returned itself."""
    issued = _ISSUED.get(access_key)
    return issued.owner if issued else access_key


def _get_session_token(original: Callable[..., ActionResult], response: TokenResponse) -> ActionResult:
    answer = original(response)
    result: Any = answer.result
    credentials, account = result["Credentials"], response.current_account
    access_key = generate_access_key_id_from_account_id(account, prefix="ASIA", total_length=20)
    credentials["AccessKeyId"], credentials["SecretAccessKey"] = access_key, random_alphanumeric(40)
    credentials["SessionToken"] = random_session_token()
    owner = parse_credential(response.normalized_request.environ).access_key
    _ISSUED[access_key] = IssuedToken(owner=owner, expiration=credentials["Expiration"])
    return answer


def _get_caller_identity(
    original: Callable[..., tuple[str, str, str]], backend: STSBackend, access_key_id: str, region: str
) -> tuple[str, str, str]:
    return original(backend, long_term_key(access_key_id), region)
