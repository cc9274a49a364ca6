"""Run a data plane over inventories that a test invents; its nodes do not exist."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.data_plane import reconciler
from local.data_plane.launch_failures import Launches
from local.errors import LocalError
from local.network import vpc_network
from local.node import metadata
from local.node.inventory import Instance, Inventory
from local.storage import exports
from tests.local.instances import instance

ONE = instance(4, groups=("sg-1",), public="198.18.0.4", internet="198.18.0.4")
TWO = instance(5, groups=("sg-1",), public=None, internet=None)


class FakeEc2:
    """Stands in for EC2, STS and IAM; unknown instances are gone when details are requested."""

    def __init__(self, unknown: set[str]) -> None:
        self.unknown = unknown
        self.terminated: list[str] = []
        self.meta = SimpleNamespace(region_name="us-east-1")

    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": "123456789012"}

    def describe_instance_attribute(self, InstanceId: str, Attribute: str) -> dict[str, Any]:  # noqa: N803  (AWS's name)
        if InstanceId in self.unknown:
            error = {"Error": {"Code": "InvalidInstanceID.NotFound", "Message": "gone"}}
            raise ClientError(error, "DescribeInstanceAttribute")  # type: ignore[arg-type]  # the type requires all fields
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
class FakeCloud:
    """The inventory, and a record of what the data plane does."""

    plane: reconciler.Reconciler
    ec2: FakeEc2
    inventory: Inventory = dataclasses.field(default_factory=lambda: Inventory(instances=(), security_groups=()))
    running: list[str] = dataclasses.field(default_factory=list)
    actions: list[str] = dataclasses.field(default_factory=list)
    gpus: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    cannot_start: str = ""
    exit_code: int | None = None
    requests_metadata: bool = True
    """True if nodes get as far as requesting their metadata."""
    now: float = 1000.0

    def note(self, what: str) -> bool:
        self.actions.append(what)
        return True

    def show(self, *instances: Instance, unreadable: frozenset[str] = frozenset()) -> None:
        self.inventory = Inventory(instances=instances, security_groups=(), unreadable=unreadable)
        self.plane.reconcile()


@pytest.fixture
def unknown() -> set[str]:
    """Name instances that have ended when EC2 is asked for details."""
    return set()


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: set[str]) -> FakeCloud:
    ec2 = FakeEc2(unknown)
    session: Any = SimpleNamespace(client=lambda _service: ec2)
    plane = reconciler.Reconciler(session, run_dir=tmp_path, cgroup=tmp_path / "cgroup", layers=[])
    cloud = FakeCloud(plane=plane, ec2=ec2)
    monkeypatch.setattr(plane, "_launches", Launches(lambda: cloud.now))

    def start(instance: Instance, *, gpu_models: tuple[str, ...], **_places: Any) -> Any:
        if cloud.cannot_start:
            raise LocalError(cloud.cannot_start)
        cloud.running.append(instance.instance_id)
        cloud.gpus[instance.instance_id] = gpu_models
        return SimpleNamespace(
            instance=instance,
            disk=tmp_path / "disk",
            cgroup=tmp_path / "cgroup",
            exit_code=lambda: cloud.exit_code,
            has_requested_metadata=lambda: cloud.requests_metadata,
            last_console_line=lambda: "Failed to mount",
        )

    replacements: dict[str, Callable[..., Any]] = {
        "read_inventory": lambda *_clients: cloud.inventory,
        "read_mount_targets": lambda *_clients, faults: (),
        # On a busy machine, others may hold all of its inotify instances.
        "inotify_shortage": lambda _nodes: None,
        "start_node": start,
        "request_reboot": lambda node: cloud.note(f"ask {node.instance.instance_id}"),
        "restart_node": lambda node, **_places: cloud.note(f"restart {node.instance.instance_id}"),
        "destroy_node": lambda node: cloud.running.remove(node.instance.instance_id),
    }
    for name, replacement in replacements.items():
        monkeypatch.setattr(reconciler, name, replacement)
    for name in ("create_router", "delete_router", "run_nft", "load_routes"):
        monkeypatch.setattr(vpc_network, name, lambda *_arguments, **_named: None)
    monkeypatch.setattr(metadata, "start_server", lambda _vpc_id, _find: lambda: None)
    monkeypatch.setattr(exports, "start_name_server", lambda _vpc_id, _find: lambda: None)
    return cloud
