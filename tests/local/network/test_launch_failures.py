"""An instance that cannot boot is reported and, after a while, terminated."""

from pathlib import Path

import pytest

from local.network.launch_failures import BOOT_S, RETRY_S, START_S, reported
from local.run import status
from tests.local.fake_cloud import ONE, TWO, World


def test_fails_when_a_node_cannot_be_switched_on_for_a_minute(world: World, tmp_path: Path) -> None:
    world.cannot_start = "mount: no such device"
    world.see(ONE)
    assert status.trouble_lines(tmp_path) == f"{ONE.instance_id} is left as it is: mount: no such device\n"
    world.now += START_S
    world.see(ONE)
    assert (world.ec2.terminated, reported(tmp_path)) == ([], {})
    world.now += RETRY_S
    world.see(ONE)
    assert world.ec2.terminated == [ONE.instance_id]
    assert reported(tmp_path) == {ONE.instance_id: "mount: no such device"}


def test_node_that_could_not_be_switched_on_at_first_is_tried_again(world: World, tmp_path: Path) -> None:
    world.cannot_start = "mount: no such device"
    world.see(ONE, TWO)
    world.cannot_start = ""
    world.now += RETRY_S - 1
    world.see(ONE, TWO)
    assert world.running == []
    assert "no such device" in status.trouble_lines(tmp_path)
    world.now += 1
    world.see(ONE, TWO)
    assert world.running == [ONE.instance_id, TWO.instance_id]
    assert status.trouble_lines(tmp_path) == ""


@pytest.mark.parametrize(
    ("exit_code", "limit", "reason"),
    [
        (1, START_S, "its container ended (1): Failed to mount"),
        (None, BOOT_S, "it has not asked for its metadata for 300 s: Failed to mount"),
    ],
)
def test_fails_when_a_node_never_asks_for_its_metadata(
    world: World, tmp_path: Path, exit_code: int | None, limit: float, reason: str
) -> None:
    world.asks, world.exit_code = False, exit_code
    world.see(ONE)
    world.now += limit - 1
    world.see(ONE)
    assert world.ec2.terminated == []
    world.now += 2
    world.see(ONE)
    assert world.ec2.terminated == [ONE.instance_id]
    assert reported(tmp_path) == {ONE.instance_id: reason}


def test_node_that_asked_for_its_metadata_may_take_its_time(world: World, tmp_path: Path) -> None:
    world.see(ONE)
    world.now += 2 * BOOT_S
    world.see(ONE)
    assert (world.ec2.terminated, reported(tmp_path)) == ([], {})
