"""Find a call's caller and the caller's current policies."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from moto.core.utils import utcnow
from moto.iam.models import IAMBackend, Role, User, iam_backends
from moto.sts.models import AssumedRole, sts_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization import session_tokens
from local.policy_evaluation.policies import PRINCIPAL, USER_ID, Permission, Statement, parse

CDK_BOOTSTRAP_ROLE_PREFIX: Final = "cdk-"
"""Prefix of the roles of `cdk bootstrap`. They act for the administrator, so their calls are not authorized: they do
all of CloudFormation's work, with permissions that this project does not define."""

ADMINISTRATORS: Final = ("local", "test", "scheduler")
"""Keys that may do anything from the user's machine: the one in a run's variables, the one that people who know moto
use, and that of the schedules, which act as the local AWS itself. Any other key must have been issued."""


class UnknownActionError(Exception):
    """The permissions that a call requires are not described here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """A caller whose calls are authorized: a role's session or a user."""

    session_arn: str
    principal_arn: str
    """ARN of the role or the user whose policies apply."""
    account: str
    partition: str
    user_id: str
    is_role: bool
    documents: tuple[str, ...]
    """The caller's policies, as JSON."""
    context: Mapping[str, tuple[str, ...]]
    """Values of the condition keys that all its requests have."""

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Return the policies' statements. Raises PolicyError if they contain something unknown."""
        return _parse_all(self.documents)

    def arn(self, request: ApiRequest, name: str) -> str:
        """Return the ARN of one of the account's resources."""
        return f"arn:{self.partition}:{request.service}:{request.credential.region}:{self.account}:{name}"

    def permission(
        self,
        request: ApiRequest,
        resource: str = "*",
        *,
        action: str | None = None,
        context: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Permission:
        """Return one permission that a call requires, by default for the action that has the call's name."""
        condition_keys = {
            **self.context,
            "aws:RequestedRegion": (request.credential.region,),
            # The endpoint here represents AWS's, which clients reach over TLS.
            "aws:SecureTransport": ("true",),
            "aws:SourceIp": (str(request.environ.get("REMOTE_ADDR") or "127.0.0.1"),),
            **(context or {}),
        }
        return Permission(
            action=f"{request.service}:{action or request.action}", resource=resource, context=condition_keys
        )


def find_session(access_key: str) -> AssumedRole | None:
    """Return the session for which STS issued an access key."""
    for partitions in sts_backends.values():
        for backend in partitions.values():
            if session := backend.get_assumed_role_from_access_key(access_key):
                return session
    return None


def find_user(access_key: str) -> tuple[IAMBackend, User] | None:
    """Return the user who owns an access key; None for one that was deleted or made inactive."""
    access_key = session_tokens.long_term_key(access_key)
    for partitions in iam_backends.values():
        for backend in partitions.values():
            for user in backend.users.values():
                keys = {key.access_key_id: key.status for key in user.access_keys}
                if keys.get(access_key) == "Active":
                    return backend, user
    return None


def is_administrator(access_key: str) -> bool:
    """Return True for the key of an administrator or of a role of cdk bootstrap, and for a request without a key."""
    if session_tokens.long_term_key(access_key) in ("", *ADMINISTRATORS):
        return True
    session = find_session(access_key)
    return session is not None and _is_cdk_bootstrap_role(session)


def has_expired(access_key: str) -> bool:
    """Return True if STS issued the key for a time that is over."""
    issued = session_tokens.issued_token(access_key) or find_session(access_key)
    return issued is not None and issued.expiration <= utcnow()


def find_caller(access_key: str) -> Caller | None:
    """Return the caller behind a key; None if the key is an administrator's or unknown."""
    if session := find_session(access_key):
        return None if _is_cdk_bootstrap_role(session) else _caller_from_session(session)
    if owner := find_user(access_key):
        return _caller_from_user(*owner)
    return None


def _is_cdk_bootstrap_role(session: AssumedRole) -> bool:
    return session.role_arn.rsplit("/", 1)[-1].startswith(CDK_BOOTSTRAP_ROLE_PREFIX)


def _caller_from_session(session: AssumedRole) -> Caller:
    roles = iam_backends[session.account_id][session.partition].roles.values()
    role = next((role for role in roles if role.arn == session.role_arn), None)
    return Caller(
        session_arn=session.arn,
        principal_arn=session.role_arn,
        account=session.account_id,
        partition=session.partition,
        user_id=session.user_id,
        is_role=True,
        # a deleted role allows nothing
        documents=tuple(_documents([role] if role else [])),
        context=_context(session.account_id, session.role_arn, **{USER_ID: session.user_id}),
    )


def list_statements(backend: IAMBackend, owner: Role | User) -> tuple[Statement, ...]:
    """Return the statements of a role's policies, or of a user's and those of the user's groups. Raises PolicyError."""
    return _parse_all(_documents([owner, *_groups(backend, owner)]))


def _groups(backend: IAMBackend, principal: Role | User) -> list[Any]:
    return [group for group in backend.groups.values() if principal in group.users]


def _caller_from_user(backend: IAMBackend, user: User) -> Caller:
    return Caller(
        session_arn=user.arn,
        principal_arn=user.arn,
        account=user.account_id,
        partition=backend.partition,
        user_id=user.id,
        is_role=False,
        documents=tuple(_documents([user, *_groups(backend, user)])),
        context=_context(user.account_id, user.arn, **{USER_ID: user.id, "aws:username": user.name}),
    )


def _context(account: str, arn: str, **values: str) -> dict[str, tuple[str, ...]]:
    return {"aws:PrincipalAccount": (account,), PRINCIPAL: (arn,), **{name: (text,) for name, text in values.items()}}


def _documents(owners: Iterable[Any]) -> Iterator[str]:
    """Yield the inline and the attached policies of each owner."""
    for owner in owners:
        attached = [version for policy in owner.managed_policies.values() for version in policy.versions]
        in_force = [version.document for version in attached if version.is_default]
        for document in [*owner.policies.values(), *in_force]:
            yield document if isinstance(document, str) else json.dumps(document)


def _parse_all(documents: Iterable[str]) -> tuple[Statement, ...]:
    return tuple(statement for document in documents for statement in _parsed(document))


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Statement, ...]:
    """Parse each document only once, because nodes make calls every few seconds."""
    return parse(json.loads(text))
