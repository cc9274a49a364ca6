"""Test the instance metadata service."""

import dataclasses
import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from local.node.metadata import Metadata, lookup
from local.node.spot_notices import INTERRUPTION, REBALANCE
from tests.local.instances import instance, interface

CREDENTIALS = {
    "AccessKeyId": "ASIA1",
    "SecretAccessKey": "secret",
    "SessionToken": "token",
    "Expiration": datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
}


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(
        instance=instance(4, groups=("sg-1",), public="198.18.0.4", internet="198.18.0.4"),
        user_data=b"#!/bin/bash\n\xff",
        public_key="ssh-ed25519 AAAA me",
        account="123456789012",
        region="us-east-1",
        role_name="node-role",
        credentials=lambda: CREDENTIALS,
        spot_notices=tmp_path / "notices",
    )


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/latest/meta-data/instance-id", b"i-00000000000000004"),
        ("/latest/meta-data/local-ipv4", b"10.0.0.4"),
        ("/2021-03-23/meta-data/public-ipv4", b"198.18.0.4"),
        ("/latest/meta-data/placement/", b"availability-zone\nregion"),
        ("/latest/user-data", b"#!/bin/bash\n\xff"),
        ("/latest/meta-data/iam/security-credentials/", b"node-role"),
        ("/latest/meta-data/public-keys/0/openssh-key", b"ssh-ed25519 AAAA me"),
        ("/latest/meta-data/nothing", None),
        ("/latest/meta-data/instance-id/below", None),
        ("/1999-01-01/meta-data/", None),
    ],
)
def test_metadata_paths_have_the_documented_values(metadata: Metadata, path: str, answer: bytes | None) -> None:
    assert lookup(metadata, path) == answer


def test_credentials_are_those_that_sts_issued(metadata: Metadata) -> None:
    answer = lookup(metadata, "/latest/meta-data/iam/security-credentials/node-role")
    assert answer is not None
    document = json.loads(answer)
    assert (document["AccessKeyId"], document["Token"]) == ("ASIA1", "token")
    assert document["Expiration"] == "2030-01-02T03:04:05Z"


def test_identity_document_names_the_instance(metadata: Metadata) -> None:
    answer = lookup(metadata, "/latest/dynamic/instance-identity/document")
    assert answer is not None
    assert json.loads(answer)["instanceId"] == metadata.instance.instance_id


@pytest.mark.parametrize(
    ("file", "path", "body"),
    [
        (INTERRUPTION, "spot/instance-action", '{"action": "terminate", "time": "2026-01-02T03:04:05Z"}'),
        (REBALANCE, "events/recommendations/rebalance", '{"noticeTime": "2026-01-02T03:04:05Z"}'),
    ],
)
def test_notice_appears_at_its_time(metadata: Metadata, file: str, path: str, body: str) -> None:
    category = path.split("/")[0].encode() + b"/"
    assert lookup(metadata, f"/latest/meta-data/{path}") is None
    assert category not in (lookup(metadata, "/latest/meta-data/") or b"").splitlines()
    metadata.spot_notices.mkdir()
    (metadata.spot_notices / file).write_text(body)
    assert lookup(metadata, f"/latest/meta-data/{path}") == body.encode()
    assert category in (lookup(metadata, "/latest/meta-data/") or b"").splitlines()


def test_every_interface_has_its_network_card_and_efa_only_ones_no_address(metadata: Metadata) -> None:
    several = (interface(4), interface(4, card=1, kind="efa-only"))
    node = dataclasses.replace(metadata, instance=dataclasses.replace(metadata.instance, interfaces=several))
    root = "/latest/meta-data/network/interfaces/macs/"
    assert lookup(node, root) == b"02:00:0a:00:00:04/\n02:00:0a:00:01:04/"
    values = [
        [lookup(node, f"{root}{nic.mac}/{name}") for name in ("network-card", "device-number", "local-ipv4s")]
        for nic in several
    ]
    assert values == [[b"0", b"0", b"10.0.0.4"], [b"1", b"0", None]]
    assert lookup(node, "/latest/meta-data/mac") == several[0].mac.encode()


def test_target_lifecycle_state_is_that_of_the_group(metadata: Metadata) -> None:
    path = "/latest/meta-data/autoscaling/target-lifecycle-state"
    assert lookup(metadata, path) is None
    leaving = dataclasses.replace(metadata.instance, target_state="Terminated")
    assert lookup(dataclasses.replace(metadata, instance=leaving), path) == b"Terminated"
