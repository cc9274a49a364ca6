"""Test that the service mounts a file system that appears late, and reports its state."""

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bootstrap.contract import SHARED_STATE_FILE, SHARED_TARGET_FILE
from bootstrap.files.paths import under_root
from bootstrap.shared_storage.mount_service import MAX_BACKOFF_S, WATCH_S, Mounter
from bootstrap.shared_storage.mounts import MountError, OccupiedError
from bootstrap.shared_storage.target import StorageTarget

ID = "fs-0123456789abcdef0"


@dataclass
class Node:
    """A node whose mounts and queries the test answers."""

    root: Path
    is_ours: bool = True
    error: OSError | MountError | None = None
    mount_error: MountError | None = None
    actions: list[str] = field(default_factory=list)
    open_error: MountError | None = None
    mounted: bool = False
    occupied: bool = False
    mounter: Mounter = field(init=False)

    def __post_init__(self) -> None:
        self.mounter = Mounter(
            root=self.root,
            region="eu-west-1",
            is_ours=self.is_ours,
            directory=self,
            start_tunnel=lambda target: self.actions.append(f"tunnel {target.host}"),
            probe=self.probe,
        )

    def announce(self, text: str) -> None:
        file = under_root(self.root, SHARED_TARGET_FILE)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    @property
    def state(self) -> str:
        return under_root(self.root, SHARED_STATE_FILE).read_text().strip()

    def probe(self, _target: StorageTarget) -> None:
        if self.error:
            raise self.error

    def guard(self) -> None:
        self.actions.append("guard")

    def is_mounted(self, _target: StorageTarget) -> bool:
        if self.occupied:
            raise OccupiedError("/shared has another mount")
        return self.mounted

    def mount(self, command: Sequence[str]) -> None:
        if self.mount_error:
            raise self.mount_error
        self.actions.append(" ".join(command))
        self.mounted = True

    def open_to_users(self) -> None:
        if self.open_error:
            raise self.open_error
        self.actions.append("open")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(root=tmp_path)


def test_directory_refuses_writes_before_the_id_is_known(node: Node) -> None:
    assert node.mounter.step() <= 1.0
    assert (node.state, node.actions) == ("not-known", ["guard"])


def test_efs_is_mounted_through_the_tunnel_with_nfs_4_1(node: Node) -> None:
    node.announce(f"efs:{ID}")
    assert node.mounter.step() == WATCH_S
    guard, tunnel, mount, opened = node.actions
    assert (guard, tunnel, opened) == ("guard", f"tunnel {ID}.efs.eu-west-1.amazonaws.com", "open")
    assert mount.startswith("mount -t nfs4 -o vers=4.1,")
    assert mount.endswith("nosuid,nodev 127.0.0.1:/ /shared")
    assert node.state == "mounted"
    node.mounter.step()
    assert node.actions[4:] == ["guard"]


def test_file_system_of_the_user_keeps_its_permissions(tmp_path: Path) -> None:
    node = Node(root=tmp_path, is_ours=False)
    node.announce(f"efs:{ID}")
    node.mounter.step()
    assert "open" not in node.actions


def test_unopenable_directory_is_opened_later_and_once(node: Node) -> None:
    node.announce(f"efs:{ID}")
    node.open_error = MountError("find failed: timed out")
    node.mounter.step()
    assert node.state == "refused"
    node.open_error = None
    node.mounter.step()
    node.mounter.step()
    assert node.state == "mounted"
    assert node.actions.count("open") == 1


def test_nothing_is_mounted_over_another_mount(node: Node) -> None:
    node.announce(f"efs:{ID}")
    node.occupied = True
    node.mounter.step()
    assert node.state == "occupied"
    assert not any(action.startswith("mount") for action in node.actions)


@pytest.mark.parametrize(
    ("region", "name"),
    [
        ("us-gov-west-1", f"{ID}.efs.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", f"{ID}.efs.cn-north-1.amazonaws.com.cn"),
        ("eusc-de-east-1", f"{ID}.efs.eusc-de-east-1.amazonaws.eu"),
        ("us-isob-east-1", f"{ID}.efs.us-isob-east-1.sc2s.sgov.gov"),
    ],
)
def test_mount_target_name_has_the_suffix_of_the_aws_partition(region: str, name: str) -> None:
    target = StorageTarget.parse(f"efs:{ID}", region=region)
    assert target is not None
    assert target.host == name


def test_lustre_is_mounted_without_a_tunnel(node: Node) -> None:
    node.announce(f"lustre:{ID}:abcdefgh")
    node.mounter.step()
    source = f"{ID}.fsx.eu-west-1.amazonaws.com@tcp:/abcdefgh"
    assert node.actions[1] == f"mount -t lustre -o noatime,flock,nosuid,nodev {source} /shared"


def test_late_mount_target_is_retried_forever_with_longer_pauses(node: Node) -> None:
    node.announce(f"efs:{ID}")
    node.error = socket.gaierror(-2, "Name or service not known")
    pauses = [node.mounter.step() for _ in range(12)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-3:] == [MAX_BACKOFF_S] * 3
    assert node.state == "no-address"
    node.error = None
    assert node.mounter.step() == WATCH_S
    assert node.state == "mounted"


def test_lost_mount_target_is_reported_and_nothing_is_unmounted(node: Node) -> None:
    node.announce(f"efs:{ID}")
    node.mounter.step()
    node.error = TimeoutError("timed out")
    before = len(node.actions)
    node.mounter.step()
    assert node.state == "unreachable"
    assert node.actions[before:] == ["guard"]
    node.error = None
    node.mounter.step()
    assert node.state == "mounted"


@pytest.mark.parametrize(
    ("error", "mount_error", "state"),
    [
        (ssl.SSLCertVerificationError(1, "Hostname mismatch"), None, "refused"),
        (ConnectionRefusedError(111, "Connection refused"), None, "unreachable"),
        (None, MountError("mount exited 32: access denied"), "refused"),
        (None, MountError("mount exited 32: unknown filesystem type 'lustre'", state="no-client"), "no-client"),
        (None, MountError("mount exited 110: Connection timed out", state="unreachable"), "unreachable"),
        (OSError(98, "Address already in use"), None, "unreachable"),
    ],
)
def test_each_mount_failure_has_one_state(
    node: Node, error: OSError | None, mount_error: MountError | None, state: str
) -> None:
    node.announce(f"efs:{ID}")
    node.error, node.mount_error = error, mount_error
    node.mounter.step()
    assert node.state == state


@pytest.mark.parametrize("text", ["", "efs:", f"efs:{ID};id", f"lustre:{ID}", f"nfs:{ID}", "x" * 5000])
def test_invalid_file_system_id_is_ignored(node: Node, text: str) -> None:
    node.announce(text)
    node.mounter.step()
    assert (node.state, node.actions) == ("not-known", ["guard"])
