"""Policies of buckets that templates gave them. moto would judge by them without their conditions, so it gets none."""

import json
from functools import lru_cache

from local.aws.permissions.policies import Statement, parse

IN_FORCE: dict[str, str] = {}
"""JSON by bucket."""


def policy_of(resource: str) -> tuple[Statement, ...]:
    """The policy of the bucket that an ARN names or lies in; raises PolicyError when it is not understood."""
    if ":s3:::" not in resource:
        return ()
    bucket = resource.split(":::")[1].partition("/")[0]
    return _parsed(IN_FORCE[bucket]) if bucket in IN_FORCE else ()


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Statement, ...]:
    return parse(json.loads(text), of_resource=True)
