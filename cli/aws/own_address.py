"""Ask a web service for the public address from which this machine reaches the internet."""

import http.client
import os
import urllib.request
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from cli.errors import ClusterError, UsageError

URL: Final = "https://checkip.amazonaws.com"
"""AWS's service, which answers with only the caller's address."""
VARIABLE: Final = "DLCLUSTER_CHECKIP_URL"
"""Environment variable with the URL of another such service."""
TIMEOUT_S: Final = 10.0
MAX_ANSWER: Final = 64
"""Maximum number of bytes to read; more than an address and a line end."""


def own_address() -> IPv4Address:
    """Return this machine's public address. Raises ClusterError."""
    url = os.environ.get(VARIABLE) or URL
    if not url.startswith(("https://", "http://")):
        raise UsageError(f"{VARIABLE} must be a URL with http:// or https://, got {url[:60]!r}")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310  (checked above)
            text = answer.read(MAX_ANSWER).decode(errors="replace").strip()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ClusterError(f"cannot ask {url} for this machine's address: {error}; give a CIDR instead") from error
    try:
        return IPv4Address(text)
    except AddressValueError as error:
        raise ClusterError(f"{url} must answer with an IPv4 address, got {text!r}; give a CIDR instead") from error
