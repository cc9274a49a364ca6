"""Test that the id reaches the service from the membership, and the state the node's record and the membership."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.contract import SHARED_STATE_FILE, SHARED_TARGET_FILE
from bootstrap.files.paths import under_root
from bootstrap.shared_storage.state import SETTLE_S, SharedStorage
from tests.bootstrap.simulated_node import Clock

ID, FORGED = "fs-0123456789abcdef0", "fs-0fffffffffffffff0"


def storage(root: Path, wanted: str | None, clock: Callable[[], float] = lambda: 0.0) -> SharedStorage:
    return SharedStorage(root, wanted=wanted, monotonic=clock)


def write_state(root: Path, state: str) -> None:
    file = under_root(root, SHARED_STATE_FILE)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{state}\n")


@pytest.mark.parametrize(
    ("wanted", "announced", "target"),
    [
        (None, f"efs:{ID}", None),
        ("efs", "", None),
        ("efs", f"efs:{ID}", f"efs:{ID}"),
        ("efs", f"lustre:{ID}:name", None),
        (f"efs:{ID}", f"efs:{FORGED}", f"efs:{ID}"),
        (f"lustre:{ID}", f"lustre:{ID}:name", f"lustre:{ID}:name"),
        (f"lustre:{ID}", f"lustre:{FORGED}:name", None),
    ],
)
def test_mount_target_file_follows_the_setting(
    tmp_path: Path, wanted: str | None, announced: str, target: str | None
) -> None:
    storage(tmp_path, wanted).follow(announced)
    file = under_root(tmp_path, SHARED_TARGET_FILE)
    assert (file.read_text().strip() if file.exists() else None) == target


def test_mount_counts_immediately_and_loss_only_if_lasting(tmp_path: Path) -> None:
    clock = Clock()
    shared = storage(tmp_path, "efs", clock)
    assert shared.mount_state() == "not-known"
    write_state(tmp_path, "no-address")
    assert shared.mount_state() == "not-known"
    write_state(tmp_path, "mounted")
    assert shared.mount_state() == "mounted"
    write_state(tmp_path, "unreachable")
    assert shared.mount_state() == "mounted"
    clock.now += SETTLE_S
    assert shared.mount_state() == "unreachable"


@pytest.mark.parametrize("state", ["", "x" * 3000, "mounted; id"])
def test_invalid_state_is_read_as_not_known(tmp_path: Path, state: str) -> None:
    write_state(tmp_path, state)
    assert storage(tmp_path, "efs").mount_state() == "not-known"


def test_cluster_without_shared_storage_has_no_mount_state(tmp_path: Path) -> None:
    assert storage(tmp_path, None).mount_state() == ""
