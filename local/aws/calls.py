"""One request to the control plane, read as its service reads it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

_CREDENTIAL = re.compile(r"Credential=([^/,&]+)/[^/]+/([^/]+)/([^/]+)/")
_FORM = "application/x-www-form-urlencoded"
LOOPBACK = ("127.0.0.1", "::1", "")


class Scope(NamedTuple):
    """Who signed a request, for which region and service; empty strings when nobody did."""

    access_key: str
    region: str
    service: str


def scope(environ: Mapping[str, Any]) -> Scope:
    """Read the signature in a header or, of an address that was signed beforehand, in the query."""
    if match := _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", "")):
        return Scope(*match.groups())
    query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
    if match := _CREDENTIAL.search(f"Credential={query.get('X-Amz-Credential', '')}"):
        return Scope(*match.groups())
    if "AWSAccessKeyId" in query:
        return Scope(query["AWSAccessKeyId"], "", "s3")
    return Scope("", "", "")


@dataclass(frozen=True)
class Call:
    """A request, and what its service is asked to do."""

    environ: Mapping[str, Any]
    body: bytes

    @cached_property
    def signed(self) -> Scope:
        return scope(self.environ)

    @property
    def service(self) -> str:
        return self.signed.service

    @property
    def method(self) -> str:
        return str(self.environ["REQUEST_METHOD"])

    @property
    def path(self) -> str:
        return str(self.environ.get("PATH_INFO", ""))

    @property
    def is_query(self) -> bool:
        """Whether the older protocol was used, whose parameters are a form."""
        return str(self.environ.get("CONTENT_TYPE", "")).startswith(_FORM)

    @property
    def is_local(self) -> bool:
        """Whether it came from the user's machine, and not from a node."""
        return self.environ.get("REMOTE_ADDR", "") in LOOPBACK

    def header(self, name: str) -> str:
        return str(self.environ.get(f"HTTP_{name.upper().replace('-', '_')}", ""))

    @cached_property
    def query(self) -> dict[str, str]:
        """What stands behind the path, without the signature."""
        found = parse_qsl(self.environ.get("QUERY_STRING", ""), keep_blank_values=True)
        return {name: value for name, value in found if not name.lower().startswith("x-amz-")}

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Of the two protocols that name an action."""
        if self.is_query:
            return dict(parse_qsl(self.body.decode(errors="replace"), keep_blank_values=True))
        if self.header("x-amz-target"):
            try:
                return dict(json.loads(self.body))
            except ValueError:
                # the service will refuse it
                return {}
        return {}

    @property
    def action(self) -> str:
        """The action of the three protocols: JSON with a target, query, and REST, where it is method and path.

        Of a query's parameters only the names: a signed address has its signature there.
        """
        if self.is_query:
            return str(self.parameters.get("Action", ""))
        if target := self.header("x-amz-target"):
            return target.rsplit(".", 1)[-1]
        names = [name for name, _ in parse_qsl(self.environ.get("QUERY_STRING", ""), keep_blank_values=True)]
        query = f"?{'&'.join(sorted(names))}" if names else ""
        return f"{self.method} {self.path}{query}"
