"""Serve instance metadata, version 2: like EC2, one server in each VPC's router identifies the nodes by address.

IMDSv1 is refused, as the launch templates require. "Instance metadata categories" in the Amazon EC2 User Guide lists
the paths.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from local.network.addresses import METADATA_ADDRESS
from local.network.vpc_network import in_namespace, mac_address
from local.node.container import host_name
from local.node.inventory import Instance
from local.node.spot_notices import INTERRUPTION, REBALANCE

Tree = Mapping[str, Any]
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105  (the name of a header)
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
MAX_TTL_S = 21600
IDLE_S = 60.0
"""Seconds that a connection may be silent; a dead node's connection would keep the namespace of its VPC's router."""
VERSIONS = ("latest", "2021-03-23", "2018-09-24", "2016-09-02", "2009-04-04")


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """Everything that the service needs to know about one instance."""

    instance: Instance
    user_data: bytes
    public_key: str
    account: str
    region: str
    role_name: str | None
    credentials: Callable[[], Mapping[str, Any]]
    """Function that returns fresh temporary credentials of the instance's role, in STS's format."""
    spot_notices: Path
    """Directory of the instance's notices from EC2; a file is served from the moment it appears."""


def _interfaces(metadata: Metadata) -> Tree:
    """Return the network interfaces by MAC address; an EFA-only interface has no address."""
    instance = metadata.instance
    tree: dict[str, Any] = {}
    for interface in instance.interfaces:
        tree[interface.mac] = {
            "device-number": str(interface.device_index),
            "interface-id": interface.interface_id,
            "mac": interface.mac,
            "network-card": str(interface.network_card_index),
            "owner-id": metadata.account,
            "security-group-ids": "\n".join(interface.group_ids),
            "subnet-id": instance.subnet_id,
            "vpc-id": instance.vpc_id,
        }
        if interface.address is not None:
            tree[interface.mac] |= {
                "local-ipv4s": interface.address,
                "local-hostname": f"{host_name(instance)}.ec2.internal",
                "subnet-ipv4-cidr-block": str(instance.address.network),
            }
    return tree


def _role(metadata: Metadata) -> Tree:
    def credentials() -> str:
        issued = metadata.credentials()
        return json.dumps({
            "Code": "Success", "Type": "AWS-HMAC",
            "LastUpdated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "AccessKeyId": issued["AccessKeyId"], "SecretAccessKey": issued["SecretAccessKey"],
            "Token": issued["SessionToken"], "Expiration": issued["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        })  # fmt: skip

    info = {"Code": "Success", "InstanceProfileArn": metadata.instance.profile_arn}
    return {"info": json.dumps(info), "security-credentials": {metadata.role_name: credentials}}


def _identity_document(metadata: Metadata) -> str:
    instance = metadata.instance
    return json.dumps({
        "accountId": metadata.account, "region": metadata.region, "availabilityZone": instance.zone,
        "instanceId": instance.instance_id, "instanceType": instance.instance_type, "imageId": instance.image_id,
        "privateIp": str(instance.address.ip), "architecture": "x86_64", "version": "2017-09-30",
    })  # fmt: skip


def _notice(metadata: Metadata, name: str) -> str:
    try:
        return (metadata.spot_notices / name).read_text()
    except FileNotFoundError:
        return ""


def metadata_tree(metadata: Metadata) -> Tree:
    """Return an instance's metadata as a tree below the service's version; a read calls the callables in it."""
    instance = metadata.instance
    address, name = str(instance.address.ip), f"{host_name(instance)}.ec2.internal"
    values: dict[str, Any] = {
        "ami-id": instance.image_id,
        "ami-launch-index": "0",
        "hostname": name,
        "instance-id": instance.instance_id,
        "instance-life-cycle": instance.lifecycle,
        "instance-type": instance.instance_type,
        "local-hostname": name,
        "local-ipv4": address,
        "mac": mac_address(address),
        "network": {"interfaces": {"macs": _interfaces(metadata)}},
        "placement": {"availability-zone": instance.zone, "region": metadata.region},
        "reservation-id": "r-" + instance.instance_id.removeprefix("i-"),
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if instance.public_address:
        values["public-ipv4"] = instance.public_address
    if instance.target_state:
        values["autoscaling"] = {"target-lifecycle-state": instance.target_state}
    if action := _notice(metadata, INTERRUPTION):
        values["spot"] = {"instance-action": action}
    if recommendation := _notice(metadata, REBALANCE):
        values["events"] = {"recommendations": {"rebalance": recommendation}}
    if metadata.role_name:
        values["iam"] = _role(metadata)
    if metadata.public_key:
        values["public-keys"] = {"0": {"openssh-key": metadata.public_key}}
    tree: dict[str, Any] = {
        "meta-data": values,
        "dynamic": {"instance-identity": {"document": _identity_document(metadata)}},
    }
    if metadata.user_data:
        tree["user-data"] = metadata.user_data
    return tree


def lookup(metadata: Metadata, path: str) -> bytes | None:
    """Return the answer to a GET of a path; None if nothing exists there."""
    parts = [part for part in path.partition("?")[0].split("/") if part]
    if not parts:
        return "\n".join(VERSIONS).encode()
    if parts[0] not in VERSIONS:
        return None
    if parts[1:] == ["meta-data", "public-keys"] and metadata.public_key:
        return f"0={metadata.instance.key_name}".encode()
    value: Any = metadata_tree(metadata)
    for part in parts[1:]:
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    if callable(value):
        value = value()
    if isinstance(value, Mapping):
        value = "\n".join(key + ("/" if isinstance(below, Mapping) else "") for key, below in value.items())
    return value if isinstance(value, bytes) else str(value).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def start_server(namespace: str, find: Callable[[str], Metadata | None]) -> Callable[[], None]:
    """Serve a VPC in the background; ``find`` returns the metadata of its instance with a private address.

    Returns the function that stops it.
    """
    tokens: dict[str, tuple[str, float]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_S
        server_version = "EC2ws"

        def log_message(self, *_arguments: object) -> None:
            """Log nothing, because the console of the local AWS is for other messages."""

        def answer(self, code: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
            self.send_response(code)
            for name, value in {"Content-Type": "text/plain", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self) -> None:
            ttl = self.headers.get(TTL_HEADER, "")
            if self.path != "/latest/api/token" or not ttl.isdigit() or not 1 <= int(ttl) <= MAX_TTL_S:
                return self.answer(400)
            token = secrets.token_urlsafe(32)
            tokens[token] = (self.client_address[0], time.monotonic() + int(ttl))
            return self.answer(200, token.encode(), {TTL_HEADER: ttl})

        def do_GET(self) -> None:
            address = self.client_address[0]
            owner, expires = tokens.get(self.headers.get(TOKEN_HEADER, ""), ("", 0.0))
            metadata = find(address)
            if owner != address or time.monotonic() > expires:
                return self.answer(401)
            body = lookup(metadata, self.path) if metadata else None
            return self.answer(404) if body is None else self.answer(200, body)

    def end() -> None:
        server.shutdown()
        server.server_close()

    server = in_namespace(namespace, lambda: _Server((METADATA_ADDRESS, 80), Handler))
    threading.Thread(target=server.serve_forever, name=f"metadata-{namespace}", daemon=True).start()
    return end
