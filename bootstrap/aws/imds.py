"""Read the instance metadata service (IMDSv2), and the instance's identity from it.

"Instance metadata categories" in the Amazon EC2 User Guide lists the paths.
"""

import http.client
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bootstrap.errors import MetadataError

ADDRESS: Final = "169.254.169.254"
TOKEN_SECONDS: Final = 60
TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The instance that this agent runs on, as EC2 knows it."""

    instance_id: str
    address: str
    """Primary private IPv4 address."""


def read_identity(host: str = ADDRESS, *, timeout_s: float = TIMEOUT_S) -> Identity:
    """Read the identity once; the caller retries until its deadline. Raises MetadataError."""
    categories = read_categories(("instance-id", "local-ipv4"), host=host, timeout_s=timeout_s)
    for name, value in categories.items():
        if value is None:
            raise MetadataError(f"metadata service at {host} has no {name}")
    return Identity(instance_id=str(categories["instance-id"]), address=str(categories["local-ipv4"]))


def read_categories(names: Iterable[str], *, host: str, timeout_s: float) -> dict[str, str | None]:
    """Read several categories with one token; None for a missing one. Raises MetadataError."""
    token = _request(
        host,
        "PUT",
        "/latest/api/token",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)},
        timeout_s=timeout_s,
    )
    if token is None:
        raise MetadataError(f"metadata service at {host} must offer session tokens (version 2), got 404")
    headers = {"X-aws-ec2-metadata-token": token}
    return {
        name: _request(host, "GET", f"/latest/meta-data/{name}", headers=headers, timeout_s=timeout_s) for name in names
    }


def _request(host: str, method: str, path: str, *, headers: dict[str, str], timeout_s: float) -> str | None:
    connection = http.client.HTTPConnection(host, timeout=timeout_s)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read().decode()
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise MetadataError(f"metadata service at {host} failed on {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status == http.HTTPStatus.NOT_FOUND:
        return None
    if response.status != http.HTTPStatus.OK or not body:
        raise MetadataError(f"metadata service at {host} answered {response.status} on {path}")
    return body
