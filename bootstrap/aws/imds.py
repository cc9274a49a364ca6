"""Read the instance metadata service, version 2: the instance's identity and its termination notice.

"Instance metadata categories" in the Amazon EC2 User Guide names the paths.
"""

import http.client
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bootstrap.errors import MetadataError

ADDRESS: Final = "169.254.169.254"
TOKEN_SECONDS: Final = 60
TIMEOUT_S: Final = 2.0
TERMINATED: Final = "Terminated"
"""Target lifecycle state of an instance that its group is about to terminate (Amazon EC2 Auto Scaling User Guide,
"Retrieve the target lifecycle state through instance metadata")."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The instance that this agent runs on, as EC2 knows it."""

    instance_id: str
    address: str
    """Primary private IPv4 address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TerminationNotice:
    """Notices of AWS about this instance, read together with its public address."""

    public_address: str | None = None
    ending: bool = False
    """The Auto Scaling group holds the termination until this node completes the lifecycle hook."""
    interrupted: bool = False
    """Spot will interrupt the instance within two minutes."""
    at_risk: bool = False
    """EC2 recommends a rebalance: the risk of a spot interruption is high."""

    @property
    def must_drain(self) -> bool:
        """Return whether the others should stop counting on this node."""
        return self.ending or self.interrupted or self.at_risk


def read_identity(host: str = ADDRESS, *, timeout_s: float = TIMEOUT_S) -> Identity:
    """Read the identity once; the caller retries until its deadline. Raises MetadataError."""
    found = _read(("instance-id", "local-ipv4"), host=host, timeout_s=timeout_s)
    for name, value in found.items():
        if value is None:
            raise MetadataError(f"metadata service at {host} has no {name}")
    return Identity(instance_id=str(found["instance-id"]), address=str(found["local-ipv4"]))


def read_notice(host: str = ADDRESS, *, timeout_s: float = TIMEOUT_S) -> TerminationNotice:
    """Read the termination notice once. Raises MetadataError."""
    lifecycle, spot, risk = (
        "autoscaling/target-lifecycle-state",
        "spot/instance-action",
        "events/recommendations/rebalance",
    )
    found = _read(("public-ipv4", lifecycle, spot, risk), host=host, timeout_s=timeout_s)
    return TerminationNotice(
        public_address=found["public-ipv4"],
        ending=found[lifecycle] == TERMINATED,
        interrupted=found[spot] is not None,
        at_risk=found[risk] is not None,
    )


def _read(names: Iterable[str], *, host: str, timeout_s: float) -> dict[str, str | None]:
    """Read several categories with one token; None for a category that this instance does not have."""
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
