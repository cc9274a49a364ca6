"""List the permissions that calls to S3 require, from a REST request's method, path and names in the query."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree

from moto.s3.models import s3_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import Caller, UnknownActionError
from local.control_plane.authorization.keys import through_service
from local.policy_evaluation.policies import Permission

_LISTING: Final = frozenset({
    "continuation-token", "delimiter", "encoding-type", "fetch-owner", "key-marker", "list-type", "marker", "max-keys",
    "prefix", "start-after", "version-id-marker", "versions",
})  # fmt: skip
_CALLS: Final = (
    (("GET", "HEAD"), "versionId", "object", "GetObjectVersion"),
    (("GET",), "uploadId", "object", "ListMultipartUploadParts"),
    (("GET",), "acl", "object", "GetObjectAcl"),
    (("GET",), "tagging", "object", "GetObjectTagging"),
    (("GET",), "attributes", "object", "GetObjectAttributes"),
    (("GET", "HEAD"), "", "object", "GetObject"),
    (("PUT",), "acl", "object", "PutObjectAcl"),
    (("PUT",), "tagging", "object", "PutObjectTagging"),
    # A part of an upload needs the object's permission.
    (("PUT", "POST"), "uploadId", "object", "PutObject"),
    (("POST",), "uploads", "object", "PutObject"),
    (("PUT",), "", "object", "PutObject"),
    (("DELETE",), "versionId", "object", "DeleteObjectVersion"),
    (("DELETE",), "uploadId", "object", "AbortMultipartUpload"),
    (("DELETE",), "tagging", "object", "DeleteObjectTagging"),
    (("DELETE",), "", "object", "DeleteObject"),
    (("GET",), "versions", "bucket", "ListBucketVersions"),
    (("GET",), "uploads", "bucket", "ListBucketMultipartUploads"),
    (("GET",), "location", "bucket", "GetBucketLocation"),
    (("GET",), "versioning", "bucket", "GetBucketVersioning"),
    (("PUT",), "versioning", "bucket", "PutBucketVersioning"),
    (("GET",), "lifecycle", "bucket", "GetLifecycleConfiguration"),
    (("PUT", "DELETE"), "lifecycle", "bucket", "PutLifecycleConfiguration"),
    (("GET",), "policy", "bucket", "GetBucketPolicy"),
    (("PUT",), "policy", "bucket", "PutBucketPolicy"),
    (("DELETE",), "policy", "bucket", "DeleteBucketPolicy"),
    (("GET",), "tagging", "bucket", "GetBucketTagging"),
    (("GET", "HEAD"), "", "bucket", "ListBucket"),
    (("PUT",), "", "bucket", "CreateBucket"),
    (("DELETE",), "", "bucket", "DeleteBucket"),
)
"""Methods, the query name that selects the action, the kind of resource, the action; the first match counts."""
_USES_OF_KEY: Final = {
    "GetObject": ("Decrypt",),
    "GetObjectVersion": ("Decrypt",),
    # Completing an upload decrypts its parts.
    "PutObject": ("Decrypt", "GenerateDataKey"),
}
"""Actions that S3 performs with a bucket's key, on the caller's behalf."""
_ORDINARY: Final = (
    _LISTING | {"partNumber", "x-id"} | {f"response-{name}" for name in ("content-type", "cache-control")}
)
"""Names in a query that do not change the action."""
_PLAIN_HOST: Final = re.compile(r"(localhost|[\d.]+|s3[\w.-]*\.amazonaws\.com)(:\d+)?")


def required_permissions(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Yield the permissions that a call requires; deleting several objects together requires one for each."""
    if not _PLAIN_HOST.fullmatch(request.header("host")):
        raise UnknownActionError(f"the bucket must stand in the path, got host {request.header('host')}")
    bucket, _, key = request.path.lstrip("/").partition("/")
    if not bucket:
        yield caller.permission(request, action="ListAllMyBuckets")
        return
    if request.method == "POST" and "delete" in request.query and not key:
        yield from _deletions(request, caller, bucket)
        return
    action = _action(request, "object" if key else "bucket")
    yield _on(request, caller, bucket, key, action=action)
    for use in _USES_OF_KEY.get(action, ()):
        yield from through_service(request, caller, _bucket_key(caller, bucket), use)
    if source := request.header("x-amz-copy-source"):
        yield _source(request, caller, source)


def _bucket_key(caller: Caller, bucket: str) -> str:
    """Return the key with which the bucket encrypts new objects; empty if that is S3's own."""
    stored_bucket = s3_backends[caller.account][caller.partition].buckets.get(bucket)
    rule = (stored_bucket.encryption or {}).get("Rule", {}) if stored_bucket else {}
    return str(rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID", ""))


def _action(request: ApiRequest, about: str) -> str:
    for methods, name, kind, action in _CALLS:
        others = request.query.keys() - _ORDINARY - {name}
        if request.method in methods and kind == about and (not name or name in request.query) and not others:
            return action
    raise UnknownActionError(f"s3:{request.action} is not described in local/control_plane/authorization")


def _on(request: ApiRequest, caller: Caller, bucket: str, key: str, *, action: str) -> Permission:
    resource = f"arn:{caller.partition}:s3:::{bucket}{f'/{key}' if key else ''}"
    listing = ("prefix", "delimiter", "max-keys") if not key else ()
    context = {f"s3:{name}": (request.query[name],) for name in listing if name in request.query}
    return caller.permission(request, resource, action=action, context=context)


def _source(request: ApiRequest, caller: Caller, source: str) -> Permission:
    """Require permission to read the source of a copy."""
    name, _, version = unquote(source).lstrip("/").partition("?versionId=")
    bucket, _, key = name.partition("/")
    return _on(request, caller, bucket, key, action="GetObjectVersion" if version else "GetObject")


def _deletions(request: ApiRequest, caller: Caller, bucket: str) -> Iterator[Permission]:
    """Require a permission for each object. S3 answers per object; here, one denial refuses the complete call."""
    for element in ElementTree.fromstring(request.body).iterfind("{*}Object"):  # noqa: S314  (sent by our own nodes)
        version = element.findtext("{*}VersionId")
        action = "DeleteObjectVersion" if version else "DeleteObject"
        yield _on(request, caller, bucket, element.findtext("{*}Key", ""), action=action)
