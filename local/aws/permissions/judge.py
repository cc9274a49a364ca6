"""Refuses what the policies of a caller do not allow, as AWS does: a node's role, any other role, a user.

Not judged are the keys that the local AWS hands its user, who is the account's administrator, and the roles of `cdk
bootstrap`. A call whose resources nobody has described is refused to a role, with a line in the log, so that no node
gets a call that was not thought about; a user needs its action on every resource.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from werkzeug.wrappers import Response

from local.aws.calls import Call
from local.aws.permissions import answers
from local.aws.permissions.bucket_policies import policy_of
from local.aws.permissions.callers import Caller, caller_of
from local.aws.permissions.errors import PolicyError, UnknownCallError
from local.aws.permissions.needs import needs
from local.aws.permissions.policies import Need, Verdict, judge

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What was found of one call."""

    caller: Caller | None = None
    """Nobody when the call is an administrator's, or of a key that is not known."""
    needs: tuple[Need, ...] = ()
    refused: Need | None = None
    """The first that is not allowed."""
    answer: Response | None = field(default=None, compare=False)
    """What a refused call gets."""


def judge_call(call: Call) -> Judgement:
    """Judge a call by the policies and the state of this moment."""
    caller = caller_of(call.signed.access_key)
    if caller is None:
        return Judgement() if call.is_local else _of_stranger(call)
    try:
        needed = _needs(call, caller)
        refused = _first_refused(needed, caller)
    except (PolicyError, UnknownCallError) as error:
        log.warning("refused to %s: %s", caller.arn_of_session, error)
        needed, refused = (), (caller.need(call), Verdict.NOT_ALLOWED)
    if refused is None:
        return Judgement(caller=caller, needs=needed)
    need, verdict = refused
    return Judgement(caller=caller, needs=needed, refused=need, answer=answers.denied(call, caller, need, verdict))


def _of_stranger(call: Call) -> Judgement:
    """Whatever is not a node's comes from the user's machine; anything else has made up its key, or has none."""
    log.warning("refused to %s: no key of the account signs %s", call.environ.get("REMOTE_ADDR"), call.action)
    return Judgement(answer=answers.stranger(call))


def _needs(call: Call, caller: Caller) -> tuple[Need, ...]:
    try:
        return needs(call, caller)
    except UnknownCallError:
        if caller.is_role:
            raise
        return (caller.need(call),)


def _first_refused(needed: Sequence[Need], caller: Caller) -> tuple[Need, Verdict] | None:
    for need in needed:
        verdict = judge(need, caller.statements, policy_of(need.resource))
        if verdict is not Verdict.ALLOWED:
            return need, verdict
    return None
