"""Read which permissions a client's calls required, as the server logs them."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError

from tests.local.control_plane.harness import ANYTHING, Aws, Role


class RecordedCalls:
    """A session of a role that may do anything; reads which permissions its calls required."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self.role = Role.make(aws, "of-needs", ANYTHING)
        self._keys = self.role.session("i-1")

    def client(self, service: str) -> Any:
        return self._aws.client(service, **self._keys)

    def required(self, service: str, call: Callable[[Any], object]) -> list[dict[str, Any]]:
        """Return the permissions that one call required, even if moto does not find what it names."""
        before = len(self._lines())
        with suppress(ClientError):
            call(self.client(service))
        (line,) = self._lines()[before:]
        return list(line["needs"])

    def _lines(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._aws.request_log.read_text().splitlines()]
        return [line for line in lines if line["access_key"] == self._keys["aws_access_key_id"]]
