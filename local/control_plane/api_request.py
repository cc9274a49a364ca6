"""Parse an AWS API request: its service, protocol, action and parameters."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

_CREDENTIAL = re.compile(r"Credential=([^/,&]+)/[^/]+/([^/]+)/([^/]+)/")
_FORM = "application/x-www-form-urlencoded"
LOOPBACK = ("127.0.0.1", "::1", "")
Protocol = Literal["ec2", "s3", "query", "json", "rest-json"]
"""Error format of a service. EC2 and S3 have XML formats of their own."""


class Credential(NamedTuple):
    """Credential that signed a request, with its region and service; all empty for an unsigned request."""

    access_key: str
    region: str
    service: str


def parse_credential(environ: Mapping[str, Any]) -> Credential:
    """Read the signature from the header, or from the query of a presigned URL."""
    if match := _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", "")):
        return Credential(*match.groups())
    query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
    if match := _CREDENTIAL.search(f"Credential={query.get('X-Amz-Credential', '')}"):
        return Credential(*match.groups())
    if "AWSAccessKeyId" in query:
        return Credential(access_key=query["AWSAccessKeyId"], region="", service="s3")
    return Credential(access_key="", region="", service="")


@dataclass(frozen=True)
class ApiRequest:
    """A request, and what it asks the service to do."""

    environ: Mapping[str, Any]
    body: bytes

    @cached_property
    def credential(self) -> Credential:
        return parse_credential(self.environ)

    @property
    def service(self) -> str:
        return self.credential.service

    @property
    def method(self) -> str:
        return str(self.environ["REQUEST_METHOD"])

    @property
    def path(self) -> str:
        return str(self.environ.get("PATH_INFO", ""))

    @property
    def is_query(self) -> bool:
        """Return True if the request uses the query protocol, whose parameters are a form."""
        return str(self.environ.get("CONTENT_TYPE", "")).startswith(_FORM)

    @property
    def protocol(self) -> Protocol:
        """Return the protocol of the request; an unsigned request, which names no service, counts as query."""
        if self.service == "ec2":
            return "ec2"
        if self.service == "s3":
            return "s3"
        if self.header("x-amz-target"):
            return "json"
        return "query" if self.is_query or not self.service else "rest-json"

    @property
    def is_from_user(self) -> bool:
        """Return True if the request came from the user's machine instead of a node."""
        return self.environ.get("REMOTE_ADDR", "") in LOOPBACK

    def header(self, name: str) -> str:
        return str(self.environ.get(f"HTTP_{name.upper().replace('-', '_')}", ""))

    @cached_property
    def query(self) -> dict[str, str]:
        """Return the URL's parameters without the signature."""
        parameters = parse_qsl(self.environ.get("QUERY_STRING", ""), keep_blank_values=True)
        return {name: value for name, value in parameters if not name.lower().startswith("x-amz-")}

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a query or JSON request; empty for REST, which names no action."""
        if self.is_query:
            return dict(parse_qsl(self.body.decode(errors="replace"), keep_blank_values=True))
        if self.header("x-amz-target"):
            try:
                return dict(json.loads(self.body))
            except ValueError:
                # The service will refuse it.
                return {}
        return {}

    @property
    def action(self) -> str:
        """Return the action; for a REST request, its method, path and the names in its query.

        Leave out the query's values, because they include a presigned URL's signature.
        """
        if self.is_query:
            return str(self.parameters.get("Action", ""))
        if target := self.header("x-amz-target"):
            return target.rsplit(".", 1)[-1]
        names = [name for name, _ in parse_qsl(self.environ.get("QUERY_STRING", ""), keep_blank_values=True)]
        query = f"?{'&'.join(sorted(names))}" if names else ""
        return f"{self.method} {self.path}{query}"
