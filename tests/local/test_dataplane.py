"""Passes of the data plane over inventories that a test makes up; nodes are names only."""

import dataclasses
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local import dataplane, fabric, metadata, notices, reboots, status
from local.errors import LocalError
from local.inventory import Instance, Inventory
from local.launch_failures import BOOT_S, RETRY_S, START_S, Launches, reported
from tests.local.test_firewall import instance

ONE = instance(4, groups=("sg-1",), public="198.18.0.4", internet="198.18.0.4")
TWO = instance(5, groups=("sg-1",), public=None, internet=None)


class Refusing:
    """A control plane that knows nothing any more, but the user data of some instances."""

    def __init__(self, unknown: set[str]) -> None:
        self.unknown = unknown
        self.terminated: list[str] = []
        self.meta = SimpleNamespace(region_name="us-east-1")

    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": "123456789012"}

    def describe_instance_attribute(self, InstanceId: str, Attribute: str) -> dict[str, Any]:  # noqa: N803  (AWS's name)
        if InstanceId in self.unknown:
            error = {"Error": {"Code": "InvalidInstanceID.NotFound", "Message": "gone"}}
            raise ClientError(error, "DescribeInstanceAttribute")  # type: ignore[arg-type]  # its type wants all fields
        return {Attribute: {}, "UserData": {}}

    def get_instance_profile(self, InstanceProfileName: str) -> dict[str, Any]:  # noqa: N803  (AWS's name)
        role = {"RoleName": f"role-of-{InstanceProfileName}", "Arn": "arn:aws:iam::123456789012:role/one"}
        return {"InstanceProfile": {"Roles": [role]}}

    def terminate_instances(self, InstanceIds: list[str]) -> None:  # noqa: N803  (AWS's name)
        self.terminated += InstanceIds

    def describe_instance_types(self, InstanceTypes: list[str]) -> dict[str, Any]:  # noqa: N803  (AWS's name)
        gpus = [{"Manufacturer": "NVIDIA", "Name": "L4", "Count": 4}] if InstanceTypes == ["g6.12xlarge"] else []
        return {"InstanceTypes": [{"GpuInfo": {"Gpus": gpus}}]}


@dataclasses.dataclass(kw_only=True, slots=True)
class World:
    """What the control plane says, and which nodes run."""

    plane: dataplane.DataPlane
    ec2: Refusing
    inventory: Inventory = dataclasses.field(default_factory=lambda: Inventory(instances=(), groups=()))
    running: list[str] = dataclasses.field(default_factory=list)
    done: list[str] = dataclasses.field(default_factory=list)
    gpus: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    cannot_start: str = ""
    exit_code: int | None = None
    asks: bool = True
    """Whether nodes come so far as to ask for their metadata."""
    now: float = 1000.0

    def note(self, what: str) -> bool:
        self.done.append(what)
        return True

    def see(self, *instances: Instance, unreadable: frozenset[str] = frozenset()) -> None:
        self.inventory = Inventory(instances=instances, groups=(), unreadable=unreadable)
        self.plane.reconcile()


@pytest.fixture
def unknown() -> set[str]:
    """Instances that EC2 knows no more when it is asked for details."""
    return set()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: set[str]) -> World:
    ec2 = Refusing(unknown)
    session: Any = SimpleNamespace(client=lambda _service: ec2)
    plane = dataplane.DataPlane(session, run_dir=tmp_path, cgroup=tmp_path / "cgroup", layers=[])
    world = World(plane=plane, ec2=ec2)
    monkeypatch.setattr(plane, "_launches", Launches(lambda: world.now))

    def start(instance: Instance, *, gpu_models: tuple[str, ...], **_places: Any) -> Any:
        if world.cannot_start:
            raise LocalError(world.cannot_start)
        world.running.append(instance.instance_id)
        world.gpus[instance.instance_id] = gpu_models
        return SimpleNamespace(
            instance=instance,
            disk=tmp_path / "disk",
            cgroup=tmp_path / "cgroup",
            has_ended=lambda: world.exit_code,
            has_asked_who_it_is=lambda: world.asks,
            last_words=lambda: "Failed to mount",
        )

    replacements: dict[str, Callable[..., Any]] = {
        "read_inventory": lambda *_clients: world.inventory,
        "start_node": start,
        "ask_to_reboot": lambda node: world.note(f"ask {node.instance.instance_id}"),
        "restart_node": lambda node, **_places: world.note(f"restart {node.instance.instance_id}"),
        "destroy_node": lambda node: world.running.remove(node.instance.instance_id),
    }
    for name, replacement in replacements.items():
        monkeypatch.setattr(dataplane, name, replacement)
    for name in ("create_router", "delete_router", "load_rules", "load_routes"):
        monkeypatch.setattr(fabric, name, lambda *_arguments, **_named: None)
    monkeypatch.setattr(metadata, "start_server", lambda _vpc_id, _find: lambda: None)
    return world


def test_nodes_follow_the_control_plane(world: World) -> None:
    world.see(ONE, TWO)
    assert world.running == [ONE.instance_id, TWO.instance_id]
    world.see(TWO)
    assert world.running == [TWO.instance_id]


def test_profile_that_is_associated_after_the_first_look_gives_the_instance_its_role(world: World) -> None:
    world.see(ONE)
    found = world.plane.find(ONE.vpc_id, str(ONE.address.ip))
    assert found is not None
    assert found.role_name is None
    world.see(dataclasses.replace(ONE, profile_arn="arn:aws:iam::123456789012:instance-profile/mine"))
    found = world.plane.find(ONE.vpc_id, str(ONE.address.ip))
    assert found is not None
    assert found.role_name == "role-of-mine"


def test_instance_that_cannot_be_described_does_not_hold_up_the_others(world: World, unknown: set[str]) -> None:
    unknown.add(ONE.instance_id)
    world.see(ONE, TWO)
    assert world.running == [TWO.instance_id]
    unknown.clear()
    world.see(ONE, TWO)
    assert sorted(world.running) == [ONE.instance_id, TWO.instance_id]


def test_error_that_comes_again_is_logged_once_and_shown_until_it_is_over(
    world: World, unknown: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unknown.add(ONE.instance_id)
    for _ in range(3):
        world.see(ONE, TWO)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert told[0].startswith(f"{ONE.instance_id} is left as it is: ClientError(")
    shown = status.trouble_lines(tmp_path)
    assert shown.startswith(f"{ONE.instance_id} is left as it is: ClientError(")
    assert shown.count("\n") == 1
    unknown.clear()
    world.see(ONE, TWO)
    assert status.trouble_lines(tmp_path) == ""
    unknown.add(ONE.instance_id)
    world.see(TWO)
    world.see(ONE, TWO)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2


def test_pass_that_is_given_up_leaves_all_nodes_as_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.see(ONE)

    def refuse(*_clients: Any) -> Inventory:
        raise LookupError("subnet-1")

    monkeypatch.setattr(dataplane, "read_inventory", refuse)
    world.see(TWO)
    assert world.running == [ONE.instance_id]


def test_pass_without_a_look_asks_nothing_and_tries_again_what_failed(world: World, unknown: set[str]) -> None:
    unknown.add(TWO.instance_id)
    world.see(ONE, TWO)
    world.inventory = Inventory(instances=(), groups=())
    unknown.clear()
    world.plane.reconcile(look=False)
    assert world.running == [ONE.instance_id, TWO.instance_id]
    world.plane.reconcile()
    assert world.running == []


def test_pass_without_a_look_looks_when_the_last_look_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_clients: Any) -> Inventory:
        raise LookupError("subnet-1")

    with monkeypatch.context() as broken:
        broken.setattr(dataplane, "read_inventory", refuse)
        world.see(ONE)
    world.plane.reconcile(look=False)
    assert world.running == [ONE.instance_id]


def test_pass_without_a_look_looks_when_the_last_look_was_half_blind(world: World) -> None:
    world.see(ONE, unreadable=frozenset({TWO.instance_id}))
    world.inventory = Inventory(instances=(ONE, TWO), groups=())
    world.plane.reconcile(look=False)
    assert world.running == [ONE.instance_id, TWO.instance_id]


def test_node_whose_record_is_half_gone_is_left_as_it_is(world: World) -> None:
    world.see(ONE, TWO)
    world.see(TWO, unreadable=frozenset({ONE.instance_id}))
    assert sorted(world.running) == [ONE.instance_id, TWO.instance_id]
    world.see(TWO)
    assert world.running == [TWO.instance_id]


def test_metadata_of_a_running_instance_follows(world: World, tmp_path: Path) -> None:
    world.see(ONE)
    moved = dataclasses.replace(ONE, public_address="198.18.0.99", target_state="Terminated")
    world.see(moved)
    found = world.plane.find("vpc-1", "10.0.0.4")
    assert found is not None
    assert found.instance == moved
    assert found.notices == tmp_path / "notices" / ONE.instance_id
    assert world.running == [ONE.instance_id]


def test_node_has_the_gpus_of_its_type(world: World) -> None:
    world.see(ONE, dataclasses.replace(TWO, instance_type="g6.12xlarge"))
    assert world.gpus == {ONE.instance_id: (), TWO.instance_id: ("L4",) * 4}


def test_node_is_told_once_to_reboot_and_the_others_are_not(world: World, tmp_path: Path) -> None:
    world.see(ONE, TWO)
    reboots.request_reboot(tmp_path, ONE.instance_id)
    for _ in range(3):
        world.see(ONE, TWO)
    assert world.done == [f"ask {ONE.instance_id}"]


def test_node_that_does_not_go_down_is_switched_off_and_on(world: World, tmp_path: Path) -> None:
    reboots.request_reboot(tmp_path, ONE.instance_id)
    long_ago = time.time() - reboots.HARD_REBOOT_S - 1
    os.utime(tmp_path / reboots.DIRECTORY / ONE.instance_id, (long_ago, long_ago))
    for _ in range(3):
        world.see(ONE)
    assert world.done == [f"ask {ONE.instance_id}", f"restart {ONE.instance_id}"]


def test_spot_instance_ends_at_the_time_in_its_notice(world: World, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    notices.announce_interruption(tmp_path, ONE.instance_id, at=now - timedelta(seconds=1))
    notices.announce_interruption(tmp_path, TWO.instance_id, at=now + timedelta(seconds=60))
    world.see(ONE, TWO)
    assert world.ec2.terminated == [ONE.instance_id]
    world.see(TWO)
    assert notices.interruption_time(tmp_path, ONE.instance_id) is None
    assert notices.interruption_time(tmp_path, TWO.instance_id) is not None


def test_nodes_with_the_same_address_in_two_vpcs_have_metadata_of_their_own(world: World) -> None:
    twin = dataclasses.replace(ONE, instance_id="i-000000000000000ff", vpc_id="vpc-2")
    world.see(ONE, twin)
    found = [world.plane.find(vpc_id, str(ONE.address.ip)) for vpc_id in ("vpc-1", "vpc-2", "vpc-3")]
    assert [each and each.instance.instance_id for each in found] == [ONE.instance_id, twin.instance_id, None]
    world.see(ONE)
    assert world.plane.find("vpc-1", str(ONE.address.ip)) is not None
    assert world.plane.find("vpc-2", str(ONE.address.ip)) is None


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
