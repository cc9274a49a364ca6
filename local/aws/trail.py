"""CloudTrail's events: none, which is an answer.

The CDK CLI asks for them to explain a failed deploy; moto's error makes it repeat that for half a minute.
"""

import json
from typing import Any

from moto.cloudtrail.responses import CloudTrailResponse

from local.aws.patching import add


def install() -> None:
    """Answer LookupEvents."""
    add(CloudTrailResponse, "lookup_events", _lookup_events)


def _lookup_events(_response: Any) -> str:
    return json.dumps({"Events": []})
