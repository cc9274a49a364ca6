"""Create each AWS client only once: botocore takes a tenth of a second for each, and callers poll."""

import functools
from typing import Any

import boto3


@functools.cache
def client(service: str) -> Any:
    """Return the client of a service in the current local AWS; safe to use from several threads."""
    return boto3.client(service)  # type: ignore[call-overload]  # any service by its name
