"""List the objects below a prefix, and learn the bucket's address while doing so."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from launcher.errors import LaunchError
from launcher.hosts.node_config import chosen_region, node_region
from launcher.runner.s3.denied import explain_denial, is_denied
from launcher.runner.s3.throttling import is_throttled, pause, report

CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 6}, connect_timeout=5, read_timeout=60)
SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/s3/")
"""Matches the region in a signature; see "Authorization header" in the reference of S3's API."""


ARCHIVES: Final = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes of objects that must be restored first."""
METADATA_TRIES: Final = 5
METADATA_TIMEOUT_S: Final = 5
"""Requests for the role's credentials, and the time for each; botocore's 1 and 1 s are too few for a busy node."""


class Address(NamedTuple):
    """Place to request a bucket's objects."""

    url: str
    """URL of the bucket, with a slash at its end."""
    region: str
    """Region that a signature names."""
    bucket: str
    """Name of the bucket, for messages."""


class Object(NamedTuple):
    """An object to download."""

    key: str
    size: int
    modified_s: int
    """Time of the object's last change, in whole seconds since the epoch, as S3 gives it."""
    etag: str
    is_archived: bool = False
    """True if nobody can read the object before it is restored."""


def new_session() -> botocore.session.Session:
    """Return a session for the user's region, or else the node's, that waits for the node's credentials."""
    session = botocore.session.get_session()
    # botocore itself knows AWS_DEFAULT_REGION and the user's files, but not AWS_REGION.
    if region := chosen_region() or session.get_config_variable("region") or node_region():
        session.set_config_variable("region", region)
    session.set_config_variable("metadata_service_num_attempts", METADATA_TRIES)
    session.set_config_variable("metadata_service_timeout", METADATA_TIMEOUT_S)
    return session


class Listing:
    """The objects below a prefix, in pages."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket, self._prefix = bucket, prefix
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Return the bucket's address; call it after the first page, which follows S3's redirects."""
        if self._address is None:
            raise LaunchError(f"s3://{self._bucket}: this node has no credentials that sign with AWS4-HMAC-SHA256")
        return self._address

    def pages(self) -> Iterator[list[Object]]:
        """Yield the objects a page at a time; directories' empty placeholders are left out."""
        try:
            client: Any = new_session().create_client("s3", config=CONFIG)
            client.meta.events.register("before-send.s3.ListObjectsV2", self._learn_address)
            continuation: dict[str, str] = {}
            while True:
                page = self._page(client, continuation)
                yield [_object(item) for item in page.get("Contents", ())]
                token = page.get("NextContinuationToken")
                if token is None:
                    return
                continuation = {"ContinuationToken": token}
        except (BotoCoreError, ClientError) as error:
            path = f"{self._bucket}/{self._prefix}".rstrip("/")
            raise LaunchError(f"s3://{path}: {_reason(path, error)}") from error

    def _page(self, client: Any, continuation: Mapping[str, str]) -> Any:
        """Return the page at a continuation token; repeat the request as long as S3 throttles it."""
        throttles = 0
        while True:
            try:
                return client.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix, OptionalObjectAttributes=["RestoreStatus"], **continuation
                )
            except ClientError as error:
                answer: Any = error.response
                if not is_throttled(answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]):
                    raise
                report(answer["Error"]["Code"])
            throttles += 1
            pause(throttles)

    def _learn_address(self, request: Any, **_: Any) -> None:
        signature = request.headers.get("Authorization", "")
        scope = SCOPE.search(signature.decode() if isinstance(signature, bytes) else signature)
        if scope is not None:
            self._address = Address(f"{request.url.partition('?')[0].rstrip('/')}/", scope[1], self._bucket)


def _reason(path: str, error: BotoCoreError | ClientError) -> str:
    """Return why the listing failed; if S3 refused it, with advice."""
    if isinstance(error, ClientError) and is_denied(error.response["Error"]["Code"]):
        return explain_denial(path, error.response["Error"].get("Message", ""))
    return " ".join(str(error).split())


def _object(item: Any) -> Object:
    # A restored object keeps its class; it has an expiry then.
    is_archived = item.get("StorageClass") in ARCHIVES and "RestoreExpiryDate" not in item.get("RestoreStatus", {})
    return Object(item["Key"], item["Size"], int(item["LastModified"].timestamp()), item["ETag"], is_archived)
