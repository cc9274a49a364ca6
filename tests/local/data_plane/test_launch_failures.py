"""Test that an instance that cannot boot is reported and, after a while, terminated."""

from pathlib import Path

import pytest

from local.commands import status
from local.data_plane.launch_failures import BOOT_TIMEOUT_S, RETRY_S, START_TIMEOUT_S, read_failures
from tests.local.fake_cloud import ONE, TWO, FakeCloud


def test_node_that_fails_to_start_for_a_minute_is_reported(cloud: FakeCloud, tmp_path: Path) -> None:
    cloud.cannot_start = "mount: no such device"
    cloud.show(ONE)
    assert status.error_lines(tmp_path) == f"cannot update {ONE.instance_id}, will retry: mount: no such device\n"
    cloud.now += START_TIMEOUT_S
    cloud.show(ONE)
    assert (cloud.ec2.terminated, read_failures(tmp_path)) == ([], {})
    cloud.now += RETRY_S
    cloud.show(ONE)
    assert cloud.ec2.terminated == [ONE.instance_id]
    assert read_failures(tmp_path) == {ONE.instance_id: "mount: no such device"}


def test_failed_start_of_a_node_is_retried(cloud: FakeCloud, tmp_path: Path) -> None:
    cloud.cannot_start = "mount: no such device"
    cloud.show(ONE, TWO)
    cloud.cannot_start = ""
    cloud.now += RETRY_S - 1
    cloud.show(ONE, TWO)
    assert cloud.running == []
    assert "no such device" in status.error_lines(tmp_path)
    cloud.now += 1
    cloud.show(ONE, TWO)
    assert cloud.running == [ONE.instance_id, TWO.instance_id]
    assert status.error_lines(tmp_path) == ""


@pytest.mark.parametrize(
    ("exit_code", "limit", "reason"),
    [
        (1, START_TIMEOUT_S, "its container ended (1): Failed to mount"),
        (None, BOOT_TIMEOUT_S, "it has not requested its metadata in 300 s: Failed to mount"),
    ],
)
def test_node_that_never_requests_its_metadata_is_reported(
    cloud: FakeCloud, tmp_path: Path, exit_code: int | None, limit: float, reason: str
) -> None:
    cloud.requests_metadata, cloud.exit_code = False, exit_code
    cloud.show(ONE)
    cloud.now += limit - 1
    cloud.show(ONE)
    assert cloud.ec2.terminated == []
    cloud.now += 2
    cloud.show(ONE)
    assert cloud.ec2.terminated == [ONE.instance_id]
    assert read_failures(tmp_path) == {ONE.instance_id: reason}


def test_node_that_has_requested_its_metadata_may_boot_slowly(cloud: FakeCloud, tmp_path: Path) -> None:
    cloud.show(ONE)
    cloud.now += 2 * BOOT_TIMEOUT_S
    cloud.show(ONE)
    assert (cloud.ec2.terminated, read_failures(tmp_path)) == ([], {})
