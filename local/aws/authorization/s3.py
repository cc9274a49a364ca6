"""List the permissions that calls to S3 require, from a REST request's method, path and names in the query."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree

from moto.s3.models import s3_backends

from local.aws.authorization.callers import Caller, UnknownCallError
from local.aws.authorization.keys import through_service
from local.aws.calls import ApiRequest
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


def required_permissions(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Yield the permissions that a call requires; deleting several objects together requires one for each."""
    if not _PLAIN_HOST.fullmatch(call.header("host")):
        raise UnknownCallError(f"the bucket must stand in the path, got host {call.header('host')}")
    bucket, _, key = call.path.lstrip("/").partition("/")
    if not bucket:
        yield caller.permission(call, action="ListAllMyBuckets")
        return
    if call.method == "POST" and "delete" in call.query and not key:
        yield from _deletions(call, caller, bucket)
        return
    action = _action(call, "object" if key else "bucket")
    yield _on(call, caller, bucket, key, action=action)
    for use in _USES_OF_KEY.get(action, ()):
        yield from through_service(call, caller, _key_of(caller, bucket), use)
    if source := call.header("x-amz-copy-source"):
        yield _source(call, caller, source)


def _key_of(caller: Caller, bucket: str) -> str:
    """Return the key with which the bucket encrypts new objects; empty if that is S3's own."""
    found = s3_backends[caller.account][caller.partition].buckets.get(bucket)
    rule = (found.encryption or {}).get("Rule", {}) if found else {}
    return str(rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID", ""))


def _action(call: ApiRequest, about: str) -> str:
    for methods, name, kind, action in _CALLS:
        others = call.query.keys() - _ORDINARY - {name}
        if call.method in methods and kind == about and (not name or name in call.query) and not others:
            return action
    raise UnknownCallError(f"s3:{call.action} is not described in local/aws/authorization")


def _on(call: ApiRequest, caller: Caller, bucket: str, key: str, *, action: str) -> Permission:
    resource = f"arn:{caller.partition}:s3:::{bucket}{f'/{key}' if key else ''}"
    listing = ("prefix", "delimiter", "max-keys") if not key else ()
    context = {f"s3:{name}": (call.query[name],) for name in listing if name in call.query}
    return caller.permission(call, resource, action=action, context=context)


def _source(call: ApiRequest, caller: Caller, source: str) -> Permission:
    """Require permission to read the source of a copy."""
    name, _, version = unquote(source).lstrip("/").partition("?versionId=")
    bucket, _, key = name.partition("/")
    return _on(call, caller, bucket, key, action="GetObjectVersion" if version else "GetObject")


def _deletions(call: ApiRequest, caller: Caller, bucket: str) -> Iterator[Permission]:
    """Require a permission for each object. S3 answers per object; here, one denial refuses the complete call."""
    for found in ElementTree.fromstring(call.body).iterfind("{*}Object"):  # noqa: S314  (sent by our own nodes)
        version = found.findtext("{*}VersionId")
        action = "DeleteObjectVersion" if version else "DeleteObject"
        yield _on(call, caller, bucket, found.findtext("{*}Key", ""), action=action)
