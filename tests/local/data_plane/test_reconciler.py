"""Test that passes of the data plane make its nodes match an inventory."""

import dataclasses
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from local.commands import status
from local.data_plane import reconciler
from local.node import reboots, spot_notices
from local.node.inventory import Inventory
from tests.local.fake_cloud import ONE, TWO, FakeCloud


def test_nodes_follow_the_control_plane(cloud: FakeCloud) -> None:
    cloud.show(ONE, TWO)
    assert cloud.running == [ONE.instance_id, TWO.instance_id]
    cloud.show(TWO)
    assert cloud.running == [TWO.instance_id]


def test_late_profile_gives_the_instance_its_role(cloud: FakeCloud) -> None:
    cloud.show(ONE)
    metadata = cloud.plane.find_metadata(ONE.vpc_id, str(ONE.address.ip))
    assert metadata is not None
    assert metadata.role_name is None
    cloud.show(dataclasses.replace(ONE, profile_arn="arn:aws:iam::123456789012:instance-profile/mine"))
    metadata = cloud.plane.find_metadata(ONE.vpc_id, str(ONE.address.ip))
    assert metadata is not None
    assert metadata.role_name == "role-of-mine"


def test_undescribable_instance_does_not_block_others(cloud: FakeCloud, unknown: set[str]) -> None:
    unknown.add(ONE.instance_id)
    cloud.show(ONE, TWO)
    assert cloud.running == [TWO.instance_id]
    unknown.clear()
    cloud.show(ONE, TWO)
    assert sorted(cloud.running) == [ONE.instance_id, TWO.instance_id]


def test_repeated_error_is_logged_once_and_shown_until_it_ends(
    cloud: FakeCloud, unknown: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unknown.add(ONE.instance_id)
    for _ in range(3):
        cloud.show(ONE, TWO)
    message = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(message) == 1
    assert message[0].startswith(f"cannot update {ONE.instance_id}, will retry: ClientError(")
    shown = status.error_lines(tmp_path)
    assert shown.startswith(f"cannot update {ONE.instance_id}, will retry: ClientError(")
    assert shown.count("\n") == 1
    unknown.clear()
    cloud.show(ONE, TWO)
    assert status.error_lines(tmp_path) == ""
    unknown.add(ONE.instance_id)
    cloud.show(TWO)
    cloud.show(ONE, TWO)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2


def test_abandoned_pass_leaves_all_nodes_unchanged(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.show(ONE)

    def refuse(*_clients: Any) -> Inventory:
        raise LookupError("subnet-1")

    monkeypatch.setattr(reconciler, "read_inventory", refuse)
    cloud.show(TWO)
    assert cloud.running == [ONE.instance_id]


def test_pass_without_reread_calls_no_api_and_retries_failures(cloud: FakeCloud, unknown: set[str]) -> None:
    unknown.add(TWO.instance_id)
    cloud.show(ONE, TWO)
    cloud.inventory = Inventory(instances=(), security_groups=())
    unknown.clear()
    cloud.plane.reconcile(reread=False)
    assert cloud.running == [ONE.instance_id, TWO.instance_id]
    cloud.plane.reconcile()
    assert cloud.running == []


def test_pass_without_reread_rereads_after_a_failure(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_clients: Any) -> Inventory:
        raise LookupError("subnet-1")

    with monkeypatch.context() as broken:
        broken.setattr(reconciler, "read_inventory", refuse)
        cloud.show(ONE)
    cloud.plane.reconcile(reread=False)
    assert cloud.running == [ONE.instance_id]


def test_pass_without_reread_rereads_after_an_incomplete_read(cloud: FakeCloud) -> None:
    cloud.show(ONE, unreadable=frozenset({TWO.instance_id}))
    cloud.inventory = Inventory(instances=(ONE, TWO), security_groups=())
    cloud.plane.reconcile(reread=False)
    assert cloud.running == [ONE.instance_id, TWO.instance_id]


def test_node_with_an_incomplete_record_is_not_touched(cloud: FakeCloud) -> None:
    cloud.show(ONE, TWO)
    cloud.show(TWO, unreadable=frozenset({ONE.instance_id}))
    assert sorted(cloud.running) == [ONE.instance_id, TWO.instance_id]
    cloud.show(TWO)
    assert cloud.running == [TWO.instance_id]


def test_metadata_of_a_running_instance_follows(cloud: FakeCloud, tmp_path: Path) -> None:
    cloud.show(ONE)
    moved = dataclasses.replace(ONE, public_address="198.18.0.99", target_state="Terminated")
    cloud.show(moved)
    metadata = cloud.plane.find_metadata("vpc-1", "10.0.0.4")
    assert metadata is not None
    assert metadata.instance == moved
    assert metadata.spot_notices == tmp_path / "notices" / ONE.instance_id
    assert cloud.running == [ONE.instance_id]


def test_node_has_the_gpus_of_its_type(cloud: FakeCloud) -> None:
    cloud.show(ONE, dataclasses.replace(TWO, instance_type="g6.12xlarge"))
    assert cloud.gpus == {ONE.instance_id: (), TWO.instance_id: ("L4",) * 4}


def test_reboot_is_sent_once_to_one_node(cloud: FakeCloud, tmp_path: Path) -> None:
    cloud.show(ONE, TWO)
    reboots.request_reboot(tmp_path, ONE.instance_id)
    for _ in range(3):
        cloud.show(ONE, TWO)
    assert cloud.actions == [f"ask {ONE.instance_id}"]


def test_hanging_reboot_power_cycles_the_node(cloud: FakeCloud, tmp_path: Path) -> None:
    reboots.request_reboot(tmp_path, ONE.instance_id)
    long_ago = time.time() - reboots.HARD_REBOOT_S - 1
    os.utime(tmp_path / reboots.DIRECTORY / ONE.instance_id, (long_ago, long_ago))
    for _ in range(3):
        cloud.show(ONE)
    assert cloud.actions == [f"ask {ONE.instance_id}", f"restart {ONE.instance_id}"]


def test_spot_instance_ends_at_the_time_in_its_notice(cloud: FakeCloud, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    spot_notices.announce_interruption(tmp_path, ONE.instance_id, at=now - timedelta(seconds=1))
    spot_notices.announce_interruption(tmp_path, TWO.instance_id, at=now + timedelta(seconds=60))
    cloud.show(ONE, TWO)
    assert cloud.ec2.terminated == [ONE.instance_id]
    cloud.show(TWO)
    assert spot_notices.interruption_time(tmp_path, ONE.instance_id) is None
    assert spot_notices.interruption_time(tmp_path, TWO.instance_id) is not None


def test_nodes_with_the_same_address_in_two_vpcs_have_metadata_of_their_own(cloud: FakeCloud) -> None:
    twin = dataclasses.replace(ONE, instance_id="i-000000000000000ff", vpc_id="vpc-2")
    cloud.show(ONE, twin)
    metadata = [cloud.plane.find_metadata(vpc_id, str(ONE.address.ip)) for vpc_id in ("vpc-1", "vpc-2", "vpc-3")]
    assert [found and found.instance.instance_id for found in metadata] == [ONE.instance_id, twin.instance_id, None]
    cloud.show(ONE)
    assert cloud.plane.find_metadata("vpc-1", str(ONE.address.ip)) is not None
    assert cloud.plane.find_metadata("vpc-2", str(ONE.address.ip)) is None
