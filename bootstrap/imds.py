"""Who this instance is, from the instance metadata service, version 2 only.

One token a look: an identity is read once in an agent's life, so there is nothing to cache.
"""

import http.client
from dataclasses import dataclass
from typing import Final

from bootstrap.errors import MetadataError

ADDRESS: Final = "169.254.169.254"
TOKEN_SECONDS: Final = 60
TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The instance we run on, as EC2 knows it."""

    instance_id: str
    address: str
    """Primary private IPv4 address."""


def read_identity(host: str = ADDRESS, *, timeout_s: float = TIMEOUT_S) -> Identity:
    """Ask once; the caller asks again until its deadline."""
    token = _request(
        host,
        "PUT",
        "/latest/api/token",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)},
        timeout_s=timeout_s,
    )

    def get(name: str) -> str:
        path = f"/latest/meta-data/{name}"
        headers = {"X-aws-ec2-metadata-token": token}
        return _request(host, "GET", path, headers=headers, timeout_s=timeout_s)

    return Identity(instance_id=get("instance-id"), address=get("local-ipv4"))


def _request(host: str, method: str, path: str, *, headers: dict[str, str], timeout_s: float) -> str:
    connection = http.client.HTTPConnection(host, timeout=timeout_s)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read().decode()
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise MetadataError(f"metadata service at {host} failed on {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK or not body:
        raise MetadataError(f"metadata service at {host} answered {response.status} on {path}")
    return body
